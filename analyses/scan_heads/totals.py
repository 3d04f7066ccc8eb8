"""What a scan keeps of the texts it has read: moments, histograms, sketches and a sample of texts.

Its size depends on the model and the settings, not on the corpus. It consists of tensors, so that a
scan that was stopped is resumed from a file and ends with the same bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.results import Moments
from analyses.scan_heads.sketch import Sketch

NEAR, PER_DOUBLING = 64, 8
"""Distances below ``NEAR`` are counted one by one, further ones in steps of 9 %."""
CELL, MOST = 6, 8
"""Bytes of a cell of a sequence, and the most cells of a query."""
SKETCHES = ("queries", "keys", "pairs")
TENSORS = ("control", "distances", "tokens", "massive", "sampled", "priorities", "values")
"""The attributes of the totals that are one tensor."""
OF_MOMENTS = ("n", "mean", "second", "third")
OF_SKETCHES = ("keys", "mass", "error", "total")
"""The tensors of moments and of a sketch."""
COUNTS = ("texts", "tokens", "cut", "first", "batches", "without_bos")


def lower_ends(farthest: int) -> list[int]:
    """The smallest distance of each bucket of a histogram up to the largest distance."""
    ends = [*range(min(NEAR, farthest + 1))]
    step = 0
    while (end := round(NEAR * 2 ** (step / PER_DOUBLING))) <= farthest:
        ends += [end] if end > ends[-1] else []
        step += 1
    return ends


@dataclass(frozen=True)
class Sizes:
    """The sizes of what is kept.

    Attributes:
        units: number of heads, in all layers and attentions.
        statistics: number of statistics.
        stacks: number of stacks.
        vocab: number of tokens; 0 if the model reads none.
        layers: number of layers of all stacks.
        d_model: width of the stream.
        farthest: the largest distance between two tokens.
        longest: the most tokens of a text of which cells are stored.
        sample: number of texts that are drawn.
        counters: number of tokens, and of pairs, that each head's sketches hold.
    """

    units: int
    statistics: int
    stacks: int
    vocab: int
    layers: int
    d_model: int
    farthest: int
    longest: int
    sample: int
    counters: int

    @property
    def nbytes(self) -> int:
        """Bytes that are kept, at most."""
        numbers = self.units * self.statistics
        buckets = len(lower_ends(self.farthest))
        sketches = 16 * self.units * (self.counters + 2 * min(self.counters, self.vocab))
        sample = 8 * (self.sample + 1) * numbers
        massive = 24 * self.layers * self.d_model
        moments = 8 * numbers * 2 * 6
        tokens = 8 * self.stacks * self.vocab
        cells = CELL * MOST * self.units * self.sample * self.longest
        distances = 32 * self.units * buckets
        return moments + distances + sketches + sample + massive + tokens + cells


class Totals:
    """The numbers of the texts so far.

    Attributes:
        value: moments of each statistic over texts, ``[weighting unit statistic]``.
        control: sum of the control over the texts that have it, and their number.
        distances: mass by distance, ``[kind unit side bucket]``: of attention and of uniform
            weights; of keys up to the query, and after it.
        sketches: mass by query token, key token, and pair of them.
        tokens: how often each stack has each token.
        massive: by layer and dimension, the number of massive activations, how many of them are at
            the first token, the largest size, and the token there.
        sampled: numbers of the texts of the sample, in the order of their priorities.
        priorities: the priorities of these texts; the smallest are kept.
        values: the statistics of these texts, ``[text unit statistic]``.
        counts: numbers of texts, of tokens, of texts that were cut; the first text of the pool that
            is being read, and the batches of it that are done; texts that do not begin with BOS.
    """

    def __init__(self, sizes: Sizes) -> None:
        shape = (2, sizes.units, sizes.statistics)
        double = torch.float64
        self.sizes = sizes
        self.value = Moments.none(*shape)
        self.control: Float[Tensor, "part weighting unit statistic"] = torch.zeros(
            2, *shape, dtype=double
        )
        n = len(lower_ends(sizes.farthest))
        self.distances: Float[Tensor, "kind unit side bucket"] = torch.zeros(
            2, sizes.units, 2, n, dtype=double
        )
        few = min(sizes.counters, max(1, sizes.vocab))
        lengths = (few, few, sizes.counters)
        self.sketches = {
            name: Sketch(sizes.units, length)
            for name, length in zip(SKETCHES, lengths, strict=True)
        }
        self.tokens: Int[Tensor, "stack vocab"] = torch.zeros(
            sizes.stacks, sizes.vocab, dtype=torch.long
        )
        self.massive: Float[Tensor, "part layer d_model"] = torch.zeros(
            4, sizes.layers, sizes.d_model, dtype=double
        )
        self.sampled: Int[Tensor, " text"] = torch.empty(0, dtype=torch.long)
        self.priorities: Int[Tensor, " text"] = torch.empty(0, dtype=torch.long)
        self.values: Float[Tensor, "text unit statistic"] = torch.empty(0, *shape[1:], dtype=double)
        self.counts: dict[str, int] = dict.fromkeys(COUNTS, 0)

    def add(self, other: "Totals") -> None:
        """Add the numbers of further texts, as they are of these texts alone."""
        self.value = self.value.merged(other.value)
        self.control += other.control
        self.distances += other.distances
        self.tokens += other.tokens
        for name, sketch in self.sketches.items():
            sketch.merge(other.sketches[name])
        n, first, largest, _ = other.massive
        self.massive[0] += n
        self.massive[1] += first
        larger = largest > self.massive[2]
        self.massive[2:] = other.massive[2:].where(larger, self.massive[2:])
        self._offer(other.sampled, other.priorities, other.values)
        for name in COUNTS:
            self.counts[name] += other.counts[name]

    def draw(
        self, numbers: Int[Tensor, " text"], values: Float[Tensor, "text unit statistic"], seed: int
    ) -> None:
        """Offer texts to the sample, which is drawn uniformly (Vitter 1985).

        A text's priority is a hash of its number and the seed, so the sample does not depend on how
        texts are divided into batches.
        """
        drawn = torch.tensor([priority(number, seed) for number in numbers.tolist()])
        self._offer(numbers, drawn, values)

    def _offer(self, numbers: Tensor, priorities: Tensor, values: Tensor) -> None:
        priorities = torch.cat([self.priorities, priorities])
        lowest = priorities.argsort(stable=True)[: self.sizes.sample]
        self.priorities = priorities[lowest]
        self.sampled = torch.cat([self.sampled, numbers])[lowest]
        self.values = torch.cat([self.values, values])[lowest]

    def tensors(self) -> dict[str, Tensor]:
        """All numbers, by name."""
        moments = {name: getattr(self.value, name) for name in OF_MOMENTS}
        sketches = {
            f"{name} {part}": getattr(sketch, part)
            for name, sketch in self.sketches.items()
            for part in OF_SKETCHES
        }
        return {
            **{f"value {name}": tensor for name, tensor in moments.items()},
            **sketches,
            **{name: getattr(self, name) for name in TENSORS},
            "counts": torch.tensor([self.counts[name] for name in COUNTS]),
        }

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of :meth:`tensors`."""
        return {name: tensor.clone() for name, tensor in self.tensors().items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from numbers that :meth:`snapshot` gave.

        Raises:
            ValueError: they are those of another scan, or damaged.
        """
        expected = self.tensors()
        if set(tensors) != set(expected):
            raise ValueError(f"it holds {', '.join(sorted(tensors))}")
        for name, tensor in expected.items():
            saved, is_sample = tensors[name], name in ("sampled", "priorities", "values")
            axes = slice(1 if is_sample else 0, None)
            if saved.dtype != tensor.dtype or saved.shape[axes] != tensor.shape[axes]:
                raise ValueError(f"{name} is {saved.dtype} {list(saved.shape)}")
            if is_sample and len(saved) != len(tensors["sampled"]):
                raise ValueError(f"{name} has {len(saved)} entries")
        copies = {name: tensor.clone() for name, tensor in tensors.items()}
        self.value = Moments(*(copies[f"value {name}"] for name in OF_MOMENTS))
        for name, sketch in self.sketches.items():
            for part in OF_SKETCHES:
                setattr(sketch, part, copies[f"{name} {part}"])
        for name in TENSORS:
            setattr(self, name, copies[name])
        self.counts = dict(zip(COUNTS, copies["counts"].tolist(), strict=True))


def priority(number: int, seed: int) -> int:
    """A hash of a text's number and a seed, uniform below 2^62 (SplitMix64, Steele et al. 2014)."""
    mask = 2**64 - 1
    x = (seed * 0x9E3779B97F4A7C15 + (number + 1) * 0xD1B54A32D192ED03) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return (x ^ (x >> 31)) >> 2
