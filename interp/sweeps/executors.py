"""Executors, which run the forwards of a sweep: in this thread, or elsewhere."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from interp.errors import InvalidInput, shorten
from interp.sweeps.schedule import Job


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


EXECUTORS: dict[str, Executor] = {"local": local}


def executor_of(requested: object) -> Executor:
    """The executor of this name, or the one given.

    Raises:
        InvalidInput: ``requested`` is neither a known name nor an executor.
    """
    if isinstance(requested, str) and requested in EXECUTORS:
        return EXECUTORS[requested]
    if not isinstance(requested, str) and isinstance(requested, Executor):
        return requested
    raise InvalidInput(
        f"executor={shorten(requested)} is not one of {', '.join(EXECUTORS)}, nor a function "
        "(jobs, work) that yields what work(job) yields."
    )
