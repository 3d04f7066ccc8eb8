"""Schedules a sweep: which prompts run together, and which cases run as one batched forward.

Prompts of similar length run together, so that little is spent on padding. Cases run together if
about the same number of columns is computed for each: those with the same restart, and those that
have no edit after the block in which they restart, which join a running forward there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch

from interp.edits import BatchSplit, Edit, batch_split, first_changed_column, for_rows
from interp.errors import InvalidEdit
from interp.execution import as_edits, place_edits, resolve_edits
from interp.metrics import Metric, MetricLike
from interp.model import Batch, Network
from interp.points import Place
from interp.sweeps.restart_map import ENTRY, Restart, RestartMap

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

    def can_join(self, restart_map: RestartMap) -> bool:
        """Whether it can join a running forward of other cases after the block that it restarts in.

        The blocks that follow are then computed without edits. It restarts before the last block,
        which is computed at some columns only.
        """
        restart, last = self.restarts[-1], restart_map.exit(restart_map.last).layer - 1
        if restart_map.last > 0 or restart is None or restart.layer >= last or self.earlier:
            return False
        entered, layout = None if restart == ENTRY else restart.layer, restart_map.model.layout
        return restart_map.block_bytes >= LARGE_BLOCK and all(
            at.layer == entered and at.point.value.region != "exit" and not layout[at].carried
            for at, _ in self.edits
        )

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
"""At most one column in ``WASTE`` is computed unnecessarily by cases with the same restart."""
LARGE_BLOCK, FIXED = 2**22, 32
"""Reading the weights of a block takes the time of about ``FIXED`` rows if they have at least
``LARGE_BLOCK`` bytes, too many for a processor's caches: cases of different restarts then run
together. ``FIXED`` is from the rates of SmolLM2's products on 7 to 256 rows."""


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
    joining = [case for case in job.cases if case.can_join(restart_map)]
    joins = {case.index for case in joining}
    equal = _of_equal_columns(restart_map, job, joining, first, copies)
    for together in _joined(equal, copies):
        yield together.cases, together.start
    others = [case for case in job.cases if case.index not in joins]
    ordered = sorted(others, key=lambda case: (_order(case), first[case.index], case.index))
    for _, alike_cases in groupby(ordered, key=_order):
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


def _order(case: Case) -> tuple[tuple[int, int], ...]:
    """The restarts of a case, in the order of the forward."""
    return tuple((r.layer, r.index) if r is not None else (-2, 0) for r in case.restarts)


@dataclass(frozen=True)
class _Group:
    """Cases that join one forward, in the order of their restarts.

    Attributes:
        cases: the cases.
        start: the first column that is computed.
        rows: rows of a case: its columns in all prompts.
        n_blocks: number of blocks of the stack.
    """

    cases: list[Case]
    start: int
    rows: int
    n_blocks: int

    @property
    def cost(self) -> int:
        """Time of its blocks, in the time of one row of one block."""
        after = [self.n_blocks - layer for ((layer, _),) in map(_order, self.cases)]
        return self.rows * sum(after) + FIXED * max(after)

    def with_group(self, later: "_Group") -> "_Group":
        """Both groups, from the first column of this one, which is not after that of ``later``."""
        cases = sorted([*self.cases, *later.cases], key=lambda case: (_order(case), case.index))
        return replace(self, cases=cases)


def _of_equal_columns(
    restart_map: RestartMap, job: Job, cases: Sequence[Case], first: Mapping[int, int], copies: int
) -> Iterator[_Group]:
    """Groups of at most ``copies`` cases for which the same columns are computed."""
    width, prompts = job.batches[-1].ids.shape[1], len(job.rows)
    n_blocks = restart_map.exit(restart_map.last).layer
    ordered = sorted(cases, key=lambda case: (first[case.index], _order(case), case.index))
    for start, group in groupby(ordered, key=lambda case: first[case.index]):
        alike_cases = list(group)
        for begin in range(0, len(alike_cases), copies):
            part = alike_cases[begin : begin + copies]
            yield _Group(part, start, prompts * (width - start), n_blocks)


def _joined(groups: Iterator[_Group], copies: int) -> Iterator[_Group]:
    """Adjacent groups as one where that takes less time, although more columns are computed."""
    running = next(groups, None)
    for group in groups:
        if running is None:
            break
        both = running.with_group(group)
        if len(both.cases) <= copies and both.cost <= running.cost + group.cost:
            running = both
        else:
            yield running
            running = group
    if running is not None:
        yield running
