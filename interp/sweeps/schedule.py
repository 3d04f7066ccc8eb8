"""Schedules a sweep: which prompts run together, and which cases run as one batched forward.

Prompts of similar length run together, so that little is spent on padding; cases with the same
restart run together if about the same number of columns is computed for each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch

from interp.edits import BatchSplit, Edit, batch_split, first_changed_column, for_rows
from interp.errors import InvalidEdit
from interp.execution import as_edits, place_edits, resolve_edits
from interp.metrics import Metric, MetricLike
from interp.model import Batch, Network
from interp.points import Place
from interp.sweeps.restart_map import Restart, RestartMap

PlacedEdits = tuple[tuple[Place, Edit], ...]
SHOWN = 3
"""Maximum number of edits of a case that a message names."""


@dataclass(frozen=True, eq=False)
class Case:
    """Edits that are applied together.

    Attributes:
        index: its row in the result.
        edits: the edits with their places.
        restarts: where each stack restarts; ``None`` for a stack that the edits do not change.
        split: how its batch may be split.
    """

    index: int
    edits: PlacedEdits
    restarts: tuple[Restart | None, ...]
    split: BatchSplit

    def __str__(self) -> str:
        return label_of(self.index, self.edits)

    def first_column(self, restart_map: RestartMap, batches: Sequence[Batch]) -> int:
        """The first column of the last stack that differs from the baseline."""
        elsewhere = any(restart_map.stack_of(place) < restart_map.last for place, _ in self.edits)
        if restart_map.is_bidirectional or elsewhere:
            return 0
        last = batches[-1]
        return min((first_changed_column(edit, at, last) for at, edit in self.edits), default=0)

    @property
    def earlier(self) -> set[Place]:
        """The places whose tensors are read by its edits, other than those that they change."""
        return {place for _, edit in self.edits for place in edit.earlier}

    def for_rows(self, rows: Sequence[int], n: int) -> PlacedEdits:
        """The edits restricted to some of the sweep's ``n`` prompts."""
        return tuple((place, for_rows(edit, place, rows, n)) for place, edit in self.edits)


def label_of(index: int, edits: PlacedEdits) -> str:
    """The name of a case in messages."""
    described = [f"{edit.kind} at {place}" for place, edit in edits[:SHOWN]]
    more = [f"{len(edits) - SHOWN} more"] if len(edits) > SHOWN else []
    return f"Edit {index} ({' and '.join([*described, *more])})"


def cases_of(restart_map: RestartMap, edits: object) -> list[Case]:
    """The cases of a sweep, each checked against the model.

    Raises:
        UnknownPlace: the model has no such place.
        InvalidEdit: an element is not an edit, an edit selects on an axis that the point does not
            have, or it has no effect because another overwrites it.
    """
    rows = list(edits) if isinstance(edits, list | tuple) else as_edits(edits)
    if not rows:
        raise InvalidEdit("A sweep needs at least one edit; none was given.")
    cases: list[Case] = []
    for index, row in enumerate(rows):
        placed = placed_in(restart_map.model, as_edits(row))
        splits = (batch_split(edit, place) for place, edit in placed)
        split = min(splits, default=BatchSplit.ROWS_REPADDED)
        restarts = restart_map.restarts([place for place, _ in placed])
        cases.append(Case(index, placed, restarts, split))
    return cases


def placed_in(model: Network, edits: Sequence[Edit]) -> PlacedEdits:
    """Edits that are applied together, with their places; checked as the edits of a run are."""
    place_edits(model, edits, model.layout)
    return tuple(resolve_edits(model, edits))


WASTE = 8
"""At most one column in ``WASTE`` is computed unnecessarily."""


@dataclass(frozen=True, eq=False)
class Job:
    """Some prompts and the cases that are run on them.

    Attributes:
        rows: indices of the prompts in the sweep.
        batches: their tokens for each stack.
        metric: the metric, restricted to these prompts.
        cases: the cases to run on them.
        n: number of prompts in the whole sweep.
        done: indices of the cases that an earlier call has run. Together with the others, they
            still determine which cases run as one, so that a resumed sweep rounds in the same way
            as one that was never stopped.
    """

    rows: tuple[int, ...]
    batches: tuple[Batch, ...]
    metric: Metric | MetricLike
    cases: tuple[Case, ...]
    n: int
    done: frozenset[int] = frozenset()


def jobs_of(
    batches: Sequence[Batch], cases: Sequence[Case], metric: Metric | MetricLike, rows: int
) -> list[Job]:
    """The jobs of a sweep; each computes the baseline of its prompts once.

    Args:
        batches: the tokens of each stack.
        cases: the cases of the sweep.
        metric: the metric.
        rows: maximum number of prompts in a job, if their batch may be split.
    """
    limit, n = split_under(metric, batches), len(batches[0].ids)
    jobs: list[Job] = []
    for split in BatchSplit:
        group = tuple(case for case in cases if min(case.split, limit) == split)
        if group:
            jobs += [
                Job(chosen, padded(batches, chosen, split), metric_of(metric, chosen, n), group, n)
                for chosen in parts(batches, split, rows)
            ]
    return jobs


def split_under(metric: Metric | MetricLike, batches: Sequence[Batch]) -> BatchSplit:
    """How a batch may be split without changing the values of ``metric``."""
    if not isinstance(metric, Metric) or metric.reads_other_rows:
        return BatchSplit.NONE
    has_padding = any(batch.real is not None for batch in batches)
    repad = has_padding and not metric.is_aligned_with_batch
    return BatchSplit.ROWS_REPADDED if repad else BatchSplit.ROWS


def parts(batches: Sequence[Batch], split: BatchSplit, rows: int) -> list[tuple[int, ...]]:
    """The rows of the prompts in each part that runs together."""
    n = len(batches[0].ids)
    if split == BatchSplit.NONE:
        return [tuple(range(n))]
    if split == BatchSplit.ROWS:
        return [tuple(part.tolist()) for part in torch.arange(n).split(rows)]
    length = lengths(batches)
    complete: list[tuple[int, ...]] = []
    part: list[int] = []
    for row in sorted(range(n), key=lambda row: length[row], reverse=True):
        if part and (len(part) == rows or not alike(length[part[0]], length[row])):
            complete.append(tuple(part))
            part = []
        part.append(row)
    return [*complete, tuple(part)]


def lengths(batches: Sequence[Batch]) -> list[tuple[int, ...]]:
    """Number of tokens of each prompt in each stack."""
    counts = [batch.is_real.sum(-1).tolist() for batch in batches]
    return list(zip(*counts, strict=True))


def alike(longest: tuple[int, ...], length: tuple[int, ...]) -> bool:
    """Whether a prompt is about as long as the longest of its part, in every stack."""
    return all(0 <= a - b <= a // WASTE for a, b in zip(longest, length, strict=True))


def padded(batches: Sequence[Batch], rows: tuple[int, ...], split: BatchSplit) -> tuple[Batch, ...]:
    """The tokens of some prompts, padded anew on the right if the split allows it."""
    chosen = [batch.rows(torch.tensor(rows, device=batch.ids.device)) for batch in batches]
    return tuple(b.padded_right() if split == BatchSplit.ROWS_REPADDED else b for b in chosen)


def metric_of(metric: Metric | MetricLike, rows: tuple[int, ...], n: int) -> Metric | MetricLike:
    """The metric restricted to some of ``n`` prompts."""
    return metric.for_rows(rows, n) if isinstance(metric, Metric) else metric


def groups_of(
    restart_map: RestartMap, job: Job, copies: int
) -> Iterator[tuple[tuple[Case, ...], int]]:
    """Groups of at most ``copies`` cases that run as one forward, each with its first column.

    Cases that are done are left out.
    """
    for group, start in _whole_groups(restart_map, job, copies):
        remaining = tuple(case for case in group if case.index not in job.done)
        if remaining:
            yield remaining, start


def _whole_groups(
    restart_map: RestartMap, job: Job, copies: int
) -> Iterator[tuple[list[Case], int]]:
    """The groups, including cases that are done."""
    first = {case.index: case.first_column(restart_map, job.batches) for case in job.cases}
    width = job.batches[-1].ids.shape[1]

    def restarts(case: Case) -> tuple[tuple[int, int], ...]:
        return tuple((r.layer, r.index) if r is not None else (-2, 0) for r in case.restarts)

    ordered = sorted(job.cases, key=lambda case: (restarts(case), first[case.index], case.index))
    for _, alike_cases in groupby(ordered, key=restarts):
        group: list[Case] = []
        for case in alike_cases:
            start = first[group[0].index] if group else 0
            late = first[case.index] - start > (width - start) // WASTE
            if group and (late or len(group) == copies):
                yield group, start
                group = []
            group.append(case)
        if group:
            yield group, first[group[0].index]
