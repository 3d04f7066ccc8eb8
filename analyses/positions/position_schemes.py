"""The position schemes of a model, each with its numbers by offset, curves and description.

Each kind of scheme has a class, which is chosen once, from the parts of the model: those of
attention here, those added to the embedding in :mod:`analyses.positions.position_tables`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from math import log, pi

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.positions.by_offset import bias_by_offset, rotary_kernel
from analyses.results import Curve, number
from interp.model import ALiBi, Attention, GridBias, RelativeBias, Rotary

Rows = Iterator[tuple[str, str, int, float]]
"""Quantity, part, offset, value."""


@dataclass(frozen=True, eq=False)
class Scheme(ABC):
    """One way in which a model encodes positions.

    Attributes:
        kind: the scheme's name in the configuration.
        where: its stack and layers.
    """

    kind: str
    where: str

    @abstractmethod
    def rows(self) -> Rows:
        """The numbers by offset."""

    @abstractmethod
    def curves(self) -> list[Curve]:
        """The numbers by offset, as curves of a figure."""

    @abstractmethod
    def lines(self) -> list[str]:
        """The findings as text, the most important first."""

    @property
    def unit(self) -> str:
        """The unit of the curves."""
        return "score"


@dataclass(frozen=True, eq=False)
class RotaryScheme(Scheme):
    """Rotated queries and keys.

    Attributes:
        rates: radians per position of each pair of dimensions.
        kernel: contribution of each pair to q·k at offsets 0, 1, …, for unit length in that pair.
        mean: q·k of an equal query and key of unit length, with equal length in each dimension;
            dimensions that are not rotated contribute the same at every offset.
    """

    rates: Float[Tensor, " pair"]
    kernel: Float[Tensor, "pair offset"]
    mean: Float[Tensor, " offset"]

    def rows(self) -> Rows:
        """The kernel of each pair and of all."""
        for n, value in enumerate(self.mean.tolist()):
            yield "kernel", "all", n, value
        for pair, values in enumerate(self.kernel.tolist()):
            for n, value in enumerate(values):
                yield "kernel", f"pair {pair}", n, value

    def curves(self) -> list[Curve]:
        """The kernel of all pairs, of the fastest and of the slowest."""
        offsets = range(len(self.mean))
        return [
            Curve(f"all pairs, {self.where}", offsets, self.mean.tolist()),
            *(
                Curve(f"pair {pair}", offsets, self.kernel[pair].tolist(), faint=True)
                for pair in (0, len(self.rates) - 1)
            ),
        ]

    def lines(self) -> list[str]:
        """The wavelengths, and how far the kernel decreases."""
        longest, shortest = (2 * pi / self.rates[index].item() for index in (-1, 0))
        half = (self.mean < self.mean[0] / 2).nonzero()
        falls = f"first below half at offset {int(half[0])}" if len(half) else "nowhere below half"
        return [
            f"{len(self.rates)} pairs, wavelengths {number(shortest, 3)} to {number(longest, 3)} "
            "positions; q·k "
            f"of an equal query and key is {number(self.mean[0], 3)} at offset 0 and {falls}"
        ]


@dataclass(frozen=True, eq=False)
class BiasScheme(Scheme):
    """A bias that is added to the scores.

    Attributes:
        offsets: offset of each column; negative for keys after the query.
        bias: bias of each head.
        attention: attention of each head from a query whose scores before the bias are equal at all
            these offsets.
    """

    offsets: tuple[int, ...]
    bias: Float[Tensor, "head offset"]
    attention: Float[Tensor, "head offset"]

    def rows(self) -> Rows:
        """Bias and attention of each head."""
        for name, table in (("bias", self.bias), ("attention", self.attention)):
            for head, values in enumerate(table.tolist()):
                for n, value in zip(self.offsets, values, strict=True):
                    yield name, f"H{head}", n, value

    def curves(self) -> list[Curve]:
        """The bias of each head."""
        return [
            Curve(f"H{head}, {self.where}", self.offsets, values)
            for head, values in enumerate(self.bias.tolist())
        ]

    def lines(self) -> list[str]:
        """The mean distance that each head attends to."""
        distance = torch.tensor(self.offsets).abs().to(self.attention)
        means = (self.attention @ distance).tolist()
        text = ", ".join(f"H{head} {number(mean, 3)}" for head, mean in enumerate(means))
        return [
            f"mean distance attended to, of equal scores: {text} (without bias "
            f"{number(distance.mean(), 3)})"
        ]


@dataclass(frozen=True, eq=False)
class LinearBiasScheme(BiasScheme):
    """ALiBi.

    Attributes:
        slopes: slope of each head.
    """

    slopes: Float[Tensor, " head"]

    def lines(self) -> list[str]:
        """The slopes, and the distances at which an attention weight is halved."""
        low, high = self.slopes.min().item(), self.slopes.max().item()
        return [
            f"slopes {number(high, 3)} to {number(low, 3)}: a weight is halved every "
            f"{number(log(2) / high, 3)} to "
            f"{number(log(2) / low, 3)} positions",
            *super().lines(),
        ]


@dataclass(frozen=True, eq=False)
class BucketScheme(BiasScheme):
    """T5's biases: one for each bucket of offsets.

    Attributes:
        buckets: bucket of each offset.
    """

    buckets: tuple[int, ...]

    def rows(self) -> Rows:
        """The numbers of a bias, and the bucket of each offset."""
        yield from super().rows()
        for n, bucket in zip(self.offsets, self.buckets, strict=True):
            yield "bucket", "all heads", n, float(bucket)

    def lines(self) -> list[str]:
        """How many buckets there are."""
        return [f"{len(set(self.buckets))} buckets of offsets", *super().lines()]


def schemes_of_attention(attn: Attention, where: str, n: int) -> list[Scheme]:
    """The schemes of an attention's positions up to offset n − 1; empty if it has none."""
    scheme = attn.positions
    if isinstance(scheme, Rotary):
        rates, kernel, mean = rotary_kernel(scheme, attn.d_head, n)
        return [RotaryScheme("rotary", where, rates, kernel, mean)]
    if isinstance(scheme, GridBias):
        lines = {"row": scheme.along_row(), "column": scheme.along_column()}
        return [_of_line(bias, f"{where}, along a {line}") for line, bias in lines.items()]
    return [_bias_scheme(attn, where, n)] if scheme.has_bias else []


def _of_line(bias: Float[Tensor, "offset head"], where: str) -> BiasScheme:
    """The biases between the patches of one row or one column of an image."""
    by_head, last = bias.mT.double().cpu(), len(bias) // 2
    return BiasScheme("grid", where, tuple(range(-last, last + 1)), by_head, by_head.softmax(-1))


def _bias_scheme(attn: Attention, where: str, n: int) -> BiasScheme:
    """The scheme of an attention whose bias depends on the offset alone."""
    scheme, (key_less_query, bias) = attn.positions, bias_by_offset(attn, n)
    numbers = tuple((-key_less_query).tolist()), bias, bias.softmax(-1)
    if isinstance(scheme, RelativeBias):
        buckets = scheme.buckets(key_less_query[None, None])[0, 0]
        return BucketScheme("buckets", where, *numbers, tuple(buckets.tolist()))
    if isinstance(scheme, ALiBi):
        return LinearBiasScheme("alibi", where, *numbers, scheme.slopes())
    return BiasScheme("bias", where, *numbers)
