"""Running one job of a sweep: the baseline, then one batched forward after another."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from math import prod
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from interp.edits import Edit
from interp.errors import InvalidInput, OutOfResources
from interp.execution import first_nan, size_of
from interp.metrics import AtPosition, Metric, MetricLike, cause_of_nan
from interp.model import Batch, Network
from interp.points import Place, Point
from interp.sweeps.batched import Baseline, BatchedForward, needed_by, with_reference
from interp.sweeps.memory import Budget, Footprint, footprint, is_out_of_memory
from interp.sweeps.restart_map import RestartMap
from interp.sweeps.schedule import Case, Job, groups_of, jobs_of


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of one batched forward.

    Attributes:
        cases: row indices in the sweep's result, in the order of ``values``.
        prompts: column indices in the sweep's result.
        values: the metric for each case and prompt.
        baseline: the metric for each prompt without edits.
        note: a remark on how the values were computed, for the sweep's notes.
    """

    cases: tuple[int, ...]
    prompts: tuple[int, ...]
    values: Float[Tensor, "case prompt"]
    baseline: Float[Tensor, " prompt"]
    note: str | None = None


@runtime_checkable
class Executor(Protocol):
    """Runs jobs and yields their outcomes, forward by forward, in any order."""

    def __call__(
        self, jobs: Iterable[Job], work: Callable[[Job], Iterator[Outcome]]
    ) -> Iterator[Outcome]:
        """Yield all outcomes of all jobs; the iterator may be closed before its end."""
        ...


def local(jobs: Iterable[Job], work: Callable[[Job], Iterator[Outcome]]) -> Iterator[Outcome]:
    """Run all jobs in this thread, in order."""
    for job in jobs:
        yield from work(job)


CURRENT: ContextVar[object] = ContextVar("executor", default="local")
"""The executor of the sweeps that do not choose one; :func:`interp.use` sets it."""


def executor_of(requested: object) -> Executor:
    """The executor of this name, or the one given.

    Raises:
        InvalidInput: ``requested`` is neither a known name nor an executor.
    """
    requested = CURRENT.get() if requested == "current" else requested
    if requested == "local":
        return local
    if not isinstance(requested, str) and isinstance(requested, Executor):
        return requested
    return import_module("interp.executors").by_name(requested)  # of a room above this one


Cases = tuple[Case, ...]


@dataclass(frozen=True, eq=False)
class StartedJob:
    """A job whose unedited forward has run.

    Attributes:
        job: the job, with all that its metric compares with.
        baseline: what its edited forwards restart from.
        unedited: the metric without edits.
    """

    job: Job
    baseline: Baseline
    unedited: Float[Tensor, " prompt"]


@dataclass
class Worker:
    """Runs the jobs of one sweep.

    Attributes:
        restart_map: restart points of the model.
        budget: memory that its forwards may take.
        most: maximum cases per forward after memory was exhausted with twice as many, which may
            happen once; ``None`` before.
    """

    restart_map: RestartMap
    budget: Budget
    most: int | None = None

    def __call__(self, job: Job) -> Iterator[Outcome]:
        """Yield the outcome of each batched forward."""
        copies = self.copies(job)
        started = self.start(job)
        for cases, first_column in groups_of(self.restart_map, job, copies):
            for part in self.split(cases):
                yield from self.outcomes(started, part, first_column)

    def copies(self, job: Job) -> int:
        """Number of edited forwards of a job's prompts that run as one.

        Raises:
            OutOfResources: not even one is within the budget.
        """
        size, prompts = self.footprint(job), len(job.rows)
        if size.least(prompts) > self.budget.nbytes:
            raise OutOfResources(
                f"One edited forward of {prompts} prompts, and the stored part of the baseline, "
                f"take about {size_of(size.least(prompts))}; the sweep may take "
                f"{size_of(self.budget.nbytes)}. Give it more with memory=, or fewer or shorter "
                "prompts."
            )
        return size.copies(self.budget, prompts)

    def footprint(self, job: Job) -> Footprint:
        """The memory of an edited forward of one prompt."""
        width = max(batch.ids.shape[1] for batch in job.batches)
        edits = [placed for case in job.cases for placed in case.edits]
        needed = needed_by(self.restart_map, job)
        shapes = (self.restart_map.model.shape_at(job.batches, place) for place in needed)
        logits = logits_formed(self.restart_map.model, job.metric, edits, width)
        referred = isinstance(job.metric, Metric) and job.metric.lacks_reference
        return footprint(
            self.restart_map.model,
            width,
            logits,
            [place for place, _ in edits],
            stored=sum(prod(shape[1:]) for shape in shapes) + logits * referred,
            padded=any(batch.real is not None for batch in job.batches),
        )

    def start(self, job: Job) -> StartedJob:
        """Run the unedited forward of a job.

        Raises:
            OutOfResources: memory was exhausted.
            InvalidInput: the metric is NaN.
        """
        try:
            with torch.no_grad():
                baseline = Baseline.of(self.restart_map, job)
                job = with_reference(job, baseline)
                unedited = BatchedForward(baseline, job).values()[0]
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise self._memory_exhausted(job, "the unedited forward", 1) from error
        if bool(unedited.isnan().any()):
            raise InvalidInput(self._nan_message(job, int(unedited.isnan().nonzero()[0])))
        return StartedJob(job, baseline, unedited)

    def _nan_message(self, job: Job, row: int) -> str:
        """The message for a prompt whose metric is NaN without an edit."""
        alone = [batch.rows(torch.tensor([row], device=batch.ids.device)) for batch in job.batches]
        place = first_nan(self.restart_map.model, alone)
        cause = (
            cause_of_nan(job.metric, job.batches[-1])
            if place is None
            else f"the first tensor of the forward that holds NaN is {place}."
        )
        return f"Without an edit, the metric is NaN for prompt {job.rows[row]}: {cause}"

    def split(self, cases: Cases) -> Iterator[Cases]:
        """The cases in parts of at most :attr:`most`."""
        most = self.most or len(cases)
        for start in range(0, len(cases), most):
            yield cases[start : start + most]

    def outcomes(
        self, started: StartedJob, cases: Cases, first_column: int, note: str | None = None
    ) -> Iterator[Outcome]:
        """Run cases as one forward, or as several if memory is exhausted.

        Raises:
            OutOfResources: memory was exhausted again, or with a single case.
        """
        values = self._values(started, cases, first_column)
        if values is not None:
            indices = tuple(case.index for case in cases)
            yield Outcome(indices, started.job.rows, values, started.unedited, note)
            return
        self.most = (len(cases) + 1) // 2
        note = (
            f"Memory was exhausted with {len(cases)} edits per forward: continued with {self.most}."
        )
        for part in self.split(cases):
            yield from self.outcomes(started, part, first_column, note)

    def _values(self, started: StartedJob, cases: Cases, first_column: int) -> Tensor | None:
        """The metric for each case; ``None`` if memory was exhausted for the first time.

        Raises:
            OutOfResources: memory was exhausted again, or with a single case.
        """
        try:
            with torch.no_grad():
                return BatchedForward(started.baseline, started.job, cases, first_column).values()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if self.most is not None or len(cases) == 1:
                raise self._memory_exhausted(
                    started.job, f"{len(cases)} edits per forward", len(cases)
                ) from error
        return None

    def _memory_exhausted(self, job: Job, forward: str, copies: int) -> OutOfResources:
        peak = self.footprint(job).peak
        return OutOfResources(
            f"Memory was exhausted with {forward}, {len(job.rows)} prompts each: about "
            f"{size_of(peak * len(job.rows) * copies)}. Limit the sweep with memory=, or give it "
            "fewer or shorter prompts."
        )


def jobs_within(
    worker: Worker, batches: Sequence[Batch], cases: Sequence[Case], metric: Metric | MetricLike
) -> list[Job]:
    """The jobs of a sweep, each of as many prompts as the worker's budget allows."""
    n = len(batches[0].ids)
    whole = Job(tuple(range(n)), tuple(batches), metric, tuple(cases), n)
    together = worker.footprint(whole).prompts(worker.budget)
    return jobs_of(batches, cases, metric, together)


def logits_formed(
    model: Network, metric: Metric | MetricLike, edits: Sequence[tuple[Place, Edit]], width: int
) -> int:
    """Number of logits that are formed per prompt of ``width`` columns."""
    at_exit = [(place, edit) for place, edit in edits if place.point.value.region == "exit"]
    if not isinstance(metric, AtPosition) or not all(edit.pointwise for _, edit in at_exit):
        return model.config.n_logits * width
    edited = any(place.point == Point.LOGITS for place, _ in at_exit)
    return model.config.n_logits if edited or metric.columns is None else len(metric.columns)
