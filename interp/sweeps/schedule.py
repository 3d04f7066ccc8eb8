"""Which prompts are run together, and which edits as one forward?

Prompts of nearly one length go together, so that little is spent on padding; edits that are entered
at one door go together, if about as many columns are to be computed for each.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch

from interp.edits.scope import BatchSplit
from interp.metrics import Metric, MetricLike
from interp.model.batch import Batch
from interp.sweeps.baseline import Job, lengths
from interp.sweeps.batched import Fold
from interp.sweeps.cases import Item
from interp.sweeps.restart import Ways

WASTE = 8
"""One column in so many may be computed for nothing."""


def jobs_of(
    batches: Sequence[Batch], items: Sequence[Item], metric: Metric | MetricLike, rows: int
) -> list[Job]:
    """The work of a sweep, cut by prompts: each job runs its prompts once unedited.

    Args:
        batches: the tokens of each stack.
        items: what is swept over.
        metric: what is measured.
        rows: how many prompts a job may have, where their batch may be taken apart.
    """
    bound, n = freedom_under(metric, batches), len(batches[0].ids)
    jobs: list[Job] = []
    for level in BatchSplit:
        own = tuple(item for item in items if min(item.freedom, bound) == level)
        if own:
            jobs += [
                Job(chosen, laid(batches, chosen, level), metric_of(metric, chosen, n), own, n)
                for chosen in parts(batches, level, rows)
            ]
    return jobs


def freedom_under(metric: Metric | MetricLike, batches: Sequence[Batch]) -> BatchSplit:
    """How a batch may be taken apart without changing what ``metric`` says of a prompt."""
    if not isinstance(metric, Metric):
        return BatchSplit.NONE
    padded = any(batch.real is not None for batch in batches)
    return (
        BatchSplit.ROWS if metric.is_aligned_with_batch or not padded else BatchSplit.ROWS_REPADDED
    )


def parts(batches: Sequence[Batch], level: BatchSplit, rows: int) -> list[tuple[int, ...]]:
    """Prompts that are run together."""
    n = len(batches[0].ids)
    if level == BatchSplit.NONE:
        return [tuple(range(n))]
    if level == BatchSplit.ROWS:
        return [tuple(part.tolist()) for part in torch.arange(n).split(rows)]
    length = lengths(batches)
    found: list[tuple[int, ...]] = []
    part: list[int] = []
    for row in sorted(range(n), key=lambda row: length[row], reverse=True):
        if part and (len(part) == rows or not alike(length[part[0]], length[row])):
            found.append(tuple(part))
            part = []
        part.append(row)
    return [*found, tuple(part)]


def alike(longest: tuple[int, ...], length: tuple[int, ...]) -> bool:
    """Whether a prompt is about as long as the longest of its company, in every stack."""
    return all(0 <= a - b <= a // WASTE for a, b in zip(longest, length, strict=True))


def laid(batches: Sequence[Batch], rows: tuple[int, ...], level: BatchSplit) -> tuple[Batch, ...]:
    """Some prompts' tokens; padded anew, on the right, where that is free."""
    chosen = [batch.rows(torch.tensor(rows, device=batch.ids.device)) for batch in batches]
    return tuple(b.starting_together() if level == BatchSplit.ROWS_REPADDED else b for b in chosen)


def metric_of(metric: Metric | MetricLike, rows: tuple[int, ...], n: int) -> Metric | MetricLike:
    """What is measured of some of ``n`` prompts."""
    return metric.for_rows(rows, n) if isinstance(metric, Metric) else metric


def folds_of(ways: Ways, job: Job, copies: int) -> Iterator[Fold]:
    """The items of a job, gathered to be run as one; those that start alike next to each other."""
    first = {item.index: item.first_column(ways, job.batches) for item in job.items}
    width = job.batches[-1].ids.shape[1]

    def entered(item: Item) -> tuple[object, ...]:
        return tuple((e.layer, e.door) if e is not None else (-2, 0) for e in item.entrances)

    ordered = sorted(job.items, key=lambda item: (entered(item), first[item.index], item.index))
    for _, group in groupby(ordered, key=entered):
        own: list[Item] = []
        for item in group:
            begun = first[own[0].index] if own else 0
            late = first[item.index] - begun > (width - begun) // WASTE
            if own and (late or len(own) == copies):
                yield Fold(tuple(own), begun)
                own = []
            own.append(item)
        if own:
            yield Fold(tuple(own), first[own[0].index])
