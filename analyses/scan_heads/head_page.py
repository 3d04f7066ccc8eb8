"""What the page of one head shows of a scan: ranks, a histogram of distances, texts and cells."""

from dataclasses import dataclass
from math import isnan

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from analyses.scan_heads.result import (
    EFFECT,
    LEAST,
    OVER_CONTROL,
    SINKS,
    WEIGHTINGS,
    HeadScan,
)
from analyses.scan_heads.sequences import NO_TEXT
from interp.errors import InvalidInput

BYTE = 256
"""Number of positions that bytes can number."""


@dataclass(frozen=True, eq=False)
class DistanceHistogram:
    """How far a head looks, in tokens.

    Attributes:
        offset: position of the query minus that of the key: the middle of each bucket.
        share: share of the head's mass per token of distance.
        control: the same for equal weights on all visible keys.
    """

    offset: Float[Tensor, " bucket"]
    share: Float[Tensor, " bucket"]
    control: Float[Tensor, " bucket"]


@dataclass(frozen=True, eq=False)
class TextCells:
    """Where a head attends in a text of the sample.

    Attributes:
        source: where the text was read.
        n_tokens: number of its tokens, of which the first are here.
        queries: labels of the tokens that attend.
        keys: labels of the tokens that are attended to.
        count: number of the cells that are stored of each query, at most 8.
        key: position of the key of each cell, by query; in bytes where these suffice.
        weight: its attention weight, from 0.005 to 1.
    """

    source: str
    n_tokens: int
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    count: Integer[Tensor, " query"]
    key: Integer[Tensor, " cell"]
    weight: Float[Tensor, " cell"]


def axes_of(scan: HeadScan, weighting: str = WEIGHTINGS[0]) -> dict[str, Float[Tensor, " unit"]]:
    """What a scatter plot of heads can show: statistics, their excess over the control, effects.

    Args:
        scan: the scan.
        weighting: with which weights.

    Returns:
        The value of each head, by the name of the axis; without statistics that no head has.
    """
    names = [name for n in scan.statistics for name in (n, f"{n}{OVER_CONTROL}")]
    names += [EFFECT] if scan.class_effects is not None else []
    values = {name: scan.of(name, weighting) for name in names}
    return {name: value for name, value in values.items() if not bool(value.isnan().all())}


def furthest(scan: HeadScan, unit: int) -> str | None:
    """The mass that a head has furthest above its control; ``None`` if it has none.

    That on the first token is only taken if no other exceeds its control by 0.1.
    """
    excess = {name: scan.of(f"{name}{OVER_CONTROL}")[unit].item() for name in scan.masses}
    measured = {name: value for name, value in excess.items() if not isnan(value)}
    of_rest = [name for name, value in measured.items() if name not in SINKS and value > LEAST]
    return max(of_rest or measured, key=measured.__getitem__, default=None)


def rank_of(values: Float[Tensor, " unit"], unit: int) -> tuple[int, int] | None:
    """The rank of a head by a value, the largest first, and the number of heads that have one."""
    value = values[unit]
    if bool(value.isnan()):
        return None
    return 1 + int((values > value).sum()), int((~values.isnan()).sum())


def distances_of(scan: HeadScan, unit: int) -> DistanceHistogram:
    """The histogram of a head's distances; empty across stacks.

    Args:
        scan: the scan.
        unit: index of the head.
    """
    low = scan.lower_ends
    width = torch.cat([low[1:] - low[:-1], torch.ones(1, dtype=low.dtype)])
    share, control = scan.distances[unit] / width, scan.uniform_distances[unit] / width
    middle = low + (width - 1) / 2
    # Negative offsets first, from the farthest; side 1 has no distance 0.
    before, after = (torch.cat([x[1, 1:].flip(0), x[0]]) for x in (share, control))
    offset = torch.cat([-middle[1:].flip(0), middle])
    seen = (after > 0).nonzero().flatten()
    span = slice(int(seen.min()), int(seen.max()) + 1) if len(seen) else slice(0)
    return DistanceHistogram(offset[span], before[span], after[span])


def deciles_of(scan: HeadScan, unit: int, statistic: str) -> list[tuple[int, int, float]]:
    """The texts of a head by decile of a statistic, the largest first.

    Args:
        scan: the scan.
        unit: index of the head.
        statistic: a statistic of the scan.

    Returns:
        Decile, index in the sample and value of each text; nothing if the scan was cancelled.

    Raises:
        InvalidInput: the statistic was not measured.
    """
    chosen, column = scan.sequences, scan.column(statistic)
    if chosen is None:
        return []
    slots = zip(chosen.decile, chosen.slot[unit, column].tolist(), strict=True)
    return [
        (decile, text, float(chosen.value[text, unit, column]))
        for decile, text in slots
        if text != NO_TEXT
    ]


def text_cells(scan: HeadScan, unit: int, text: int) -> TextCells:
    """The cells of a head on a text.

    Args:
        scan: the scan.
        unit: index of the head.
        text: index of the text in the sample.

    Raises:
        InvalidInput: the scan was cancelled, so that it has no sample.
    """
    chosen = scan.sequences
    if chosen is None:
        raise InvalidInput("The scan was cancelled before texts were drawn: run it to its end.")
    query, key, weight = chosen.cells(unit, text)
    attention = scan.attentions[unit]
    queries, keys = (x[attention][text] for x in (chosen.query_labels, chosen.key_labels))
    n_tokens, queries, keys = len(queries), queries[: chosen.end], keys[: chosen.end]
    count = torch.bincount(query.long(), minlength=len(queries))
    return TextCells(
        chosen.source[text],
        n_tokens,
        queries,
        keys,
        count.to(torch.uint8),
        key.to(torch.uint8) if len(keys) <= BYTE else key,
        weight,
    )
