"""Texts by decile of each statistic of a head, and where the head attends in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.heads import pattern_at
from analyses.scan_heads.measure import Plan
from analyses.scan_heads.totals import MOST
from interp import run
from interp.model import Batch
from interp.prompts import rows_of

DECILES = ((10, 10), (8, 3), (6, 3), (4, 3), (2, 3))
"""The deciles from which texts are shown, and the most texts of each."""
LEAST = 0.005
"""A key is stored if a query attends to it more than ``LEAST``, and at most ``MOST`` of a query."""
LONGEST = 128
"""The most tokens, from the beginning of a text, that a causal model reads for the cells."""
NO_TEXT = -1
Text = tuple[Batch, ...]


@dataclass(frozen=True, eq=False)
class Sequences:
    """A random sample of texts, in deciles of each statistic, with the cells of each head.

    Attributes:
        text: number of each text in the corpus.
        source: where it was read.
        query_labels: labels of its tokens (of an encoder–decoder, by attention).
        key_labels: labels of the tokens that are attended to.
        value: each statistic of each head on it, with plain attention.
        decile: the decile of each slot, from 10 (the largest) down.
        slot: the texts of each slot, by their index in ``text``; −1 for none.
        start: where the cells of each head and text begin; they end where the next begin.
        query: position of the query of each cell.
        key: position of its key.
        weight: its attention weight.
    """

    text: Int[Tensor, " text"]
    source: tuple[str, ...]
    query_labels: Mapping[str, tuple[tuple[str, ...], ...]]
    key_labels: Mapping[str, tuple[tuple[str, ...], ...]]
    value: Float[Tensor, "text unit statistic"]
    decile: tuple[int, ...]
    slot: Int[Tensor, "unit statistic slot"]
    start: Int[Tensor, " cell_range"]
    query: Int[Tensor, " cell"]
    key: Int[Tensor, " cell"]
    weight: Float[Tensor, " cell"]

    @cached_property
    def end(self) -> int | None:
        """The end of the tokens that cells are stored of; ``None`` if that of the text."""
        is_cut = not bool((self.query >= LONGEST).any() or (self.key >= LONGEST).any())
        return LONGEST if is_cut else None

    def cells(self, unit: int, text: int) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and weight of the cells of a head on a text of the sample."""
        at = unit * len(self.text) + text
        span = slice(int(self.start[at]), int(self.start[at + 1]))
        return self.query[span], self.key[span], self.weight[span]


def sequences_of(
    plan: Plan,
    texts: Sequence[Text],
    numbers: Int[Tensor, " text"],
    sources: Sequence[str],
    values: Float[Tensor, "text unit statistic"],
    rows: int,
) -> Sequences:
    """The sample by decile, with its cells.

    Args:
        plan: what is measured.
        texts: the texts of the sample, in the order in which they were drawn.
        numbers: their numbers in the corpus.
        sources: where they were read.
        values: the statistics of each text.
        rows: texts per forward.
    """
    units = len(plan.heads)
    starts, cells = _cells(plan, texts, rows)
    query_labels, key_labels = {}, {}
    for kind in plan.attentions:
        for labels, stack in ((query_labels, kind.query), (key_labels, kind.key)):
            labels[kind.name or ""] = tuple(_labels(plan, text[stack]) for text in texts)
    decile = tuple(number for number, most in DECILES for _ in range(most))
    return Sequences(
        numbers,
        tuple(sources),
        query_labels,
        key_labels,
        values,
        decile,
        _slots(values).view(units, values.shape[2], -1),
        starts,
        *cells,
    )


def _slots(values: Float[Tensor, "text unit statistic"]) -> Int[Tensor, "cell slot"]:
    """The texts of each decile: the largest of the tenth, the first drawn of the others.

    Decile d of n values are those of ranks ⌊(d − 1) n / 10⌋ to ⌊d n / 10⌋; texts without the
    statistic have no rank.
    """
    flat = values.flatten(1).T
    slots: list[Tensor] = []
    for value in flat:
        order = value.argsort(stable=True)[: int((~value.isnan()).sum())]
        n, filled = len(order), list[int]()
        for decile, most in DECILES:
            members = order[(decile - 1) * n // 10 : decile * n // 10]
            of_decile = members.flip(0) if decile == 10 else members.sort().values  # noqa: PLR2004
            few = of_decile[:most].tolist()
            filled += few + [NO_TEXT] * (most - len(few))
        slots.append(torch.tensor(filled, dtype=torch.long))
    return torch.stack(slots)


@torch.no_grad()
def _cells(
    plan: Plan, texts: Sequence[Text], rows: int
) -> tuple[Int[Tensor, " cell_range"], tuple[Tensor, Tensor, Tensor]]:
    """Where the cells of each head and text begin, and their queries, keys and weights."""
    units, n = len(plan.heads), len(texts)
    parts: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
    end = len(plan.model.stacks[-1].blocks)
    wanted = [
        kind.places(layer)[0] for kind in plan.attentions for layer in range(len(kind.layers))
    ]
    batches = rows_of([beginning(plan, text) for text in texts])
    for chosen, some in plan.forwards(batches, rows):
        cache = run(plan.model, *some, record=wanted, stop_at_layer=end).cache
        for kind in plan.attentions:
            real = some[kind.query].is_real
            for layer in range(len(kind.layers)):
                pattern = pattern_at(cache, kind.places(layer)[0])
                weight, key = pattern.topk(min(MOST, pattern.shape[-1]), dim=-1)
                stored = (weight > LEAST) & real[:, None, :, None]
                first = plan.units[kind.name, layer].start
                # In the order of texts, then of heads.
                columns = stored.nonzero()[:, 2].short(), key[stored].short(), weight[stored].half()
                lengths = stored.sum((2, 3)).flatten().tolist()
                of_each = zip(*(column.cpu().split(lengths) for column in columns), strict=True)
                texts_and_heads = product(chosen.tolist(), range(pattern.shape[1]))
                for (text, head), cells in zip(texts_and_heads, of_each, strict=True):
                    parts[(first + head) * n + text] = cells
    each = [parts[at] for at in range(units * n)]
    lengths = torch.tensor([0, *(len(query) for query, _, _ in each)])
    query, key, weight = (torch.cat(column) for column in zip(*each, strict=True))
    return lengths.cumsum(0), (query, key, weight)


def beginning(plan: Plan, text: Text) -> Text:
    """The first tokens of a text, if the others change nothing there; else the whole text."""
    return tuple(_cut(batch) for batch in text) if plan.is_cut else text


def _cut(batch: Batch) -> Batch:
    """The first tokens of a text, to which a causal model attends as in the whole text."""
    types = None if batch.types is None else batch.types[:, :LONGEST]
    return replace(batch, ids=batch.ids[:, :LONGEST], types=types, real=None)


def _labels(plan: Plan, batch: Batch) -> tuple[str, ...]:
    if batch.images is not None:
        return tuple(str(number) for number in range(batch.ids.shape[1]))
    return tuple(plan.model.to_labels(batch.ids))
