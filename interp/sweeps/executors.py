"""Where are the forwards of a sweep run? Here, one after another; other places may come."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from interp.errors import InvalidInput
from interp.sweeps.baseline import Job


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one forward of a sweep found.

    Attributes:
        indices: which rows of the table, in the order of ``values``.
        prompts: which of its columns.
        values: the metric of each.
        clean: the metric of the prompts with nothing changed.
        note: what a reader should know of how this came about.
    """

    indices: tuple[int, ...]
    prompts: tuple[int, ...]
    values: Float[Tensor, "item prompt"]
    clean: Float[Tensor, " prompt"]
    note: str | None = None


@runtime_checkable
class Executor(Protocol):
    """Runs jobs and hands on what they find, forward by forward, in any order."""

    def __call__(
        self, jobs: Iterable[Job], work: Callable[[Job], Iterator[Outcome]]
    ) -> Iterator[Outcome]:
        """All outcomes of all jobs; it may be closed before it is at its end."""
        ...


def local(jobs: Iterable[Job], work: Callable[[Job], Iterator[Outcome]]) -> Iterator[Outcome]:
    """In this thread, in order."""
    for job in jobs:
        yield from work(job)


EXECUTORS: dict[str, Executor] = {"local": local}


def executor_of(asked: object) -> Executor:
    """The executor that is meant.

    Raises:
        InvalidInput: neither a name that is known nor an executor.
    """
    if isinstance(asked, str) and asked in EXECUTORS:
        return EXECUTORS[asked]
    if not isinstance(asked, str) and isinstance(asked, Executor):
        return asked
    raise InvalidInput(
        f"executor={asked!r} is not known; it is one of {', '.join(EXECUTORS)}, or a function "
        "(jobs, work) that yields what work(job) yields."
    )
