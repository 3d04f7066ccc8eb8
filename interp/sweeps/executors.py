"""Where the forwards of a sweep run: in this thread, or wherever an executor runs them."""

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
        cases: rows of the sweep's result, in the order of ``values``.
        prompts: its columns.
        values: the metric of each.
        baseline: the metric of the prompts without an edit.
        note: what a reader should know of how it was computed.
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
        """All outcomes of all jobs; the iterator may be closed before its end."""
        ...


def local(jobs: Iterable[Job], work: Callable[[Job], Iterator[Outcome]]) -> Iterator[Outcome]:
    """In this thread, in order."""
    for job in jobs:
        yield from work(job)


EXECUTORS: dict[str, Executor] = {"local": local}


def executor_of(requested: object) -> Executor:
    """The executor of a name, or the one given.

    Raises:
        InvalidInput: neither a known name nor an executor.
    """
    if isinstance(requested, str) and requested in EXECUTORS:
        return EXECUTORS[requested]
    if not isinstance(requested, str) and isinstance(requested, Executor):
        return requested
    raise InvalidInput(
        f"executor={shorten(requested)} is not one of {', '.join(EXECUTORS)}, nor a function "
        "(jobs, work) that yields what work(job) yields."
    )
