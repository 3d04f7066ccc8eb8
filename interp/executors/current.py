"""Which executor the sweeps and passes of a block of code use."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from interp.errors import InvalidInput, nearest, shorten
from interp.executors.passes import map_here
from interp.executors.pool import WorkerPool
from interp.executors.processes import Processes
from interp.executors.ray_cluster import Ray
from interp.model import Network
from interp.sweeps import CURRENT, Executor, Job, Outcome

Label = TypeVar("Label")
Batch = TypeVar("Batch")
Result = TypeVar("Result")
KINDS: dict[str, type[Processes] | type[Ray]] = {"processes": Processes, "ray": Ray}
"""The executors that have a name, besides ``local``."""


@contextmanager
def use(*, executor: object) -> Generator[object]:
    """Let all sweeps and passes of a block use an executor, those inside of analyses included.

    It holds for this thread (and this task of asyncio) alone, and ends with the block, also when
    that raises; blocks may be nested. Workers of an executor that is named are started by the first
    sweep and end with the block; those of an executor that is an object are left to its owner.

    Args:
        executor: ``"local"``, ``"processes"``, ``"ray"``, or an executor.

    Yields:
        The executor.

    Raises:
        InvalidInput: there is no such executor.

    Examples:
        >>> model, metric = interp.load("python-2l"), interp.metrics.loss()
        >>> heads = [interp.edits.zero("z", layer=1, head=h) for h in range(8)]
        >>> with interp.use(executor="local"):
        ...     table = interp.sweep(model, ["def f(x):", "class A:"], heads, metric)
        >>> table.complete
        True
    """
    chosen = KINDS[executor]() if isinstance(executor, str) and executor in KINDS else executor
    if chosen != "local" and (isinstance(chosen, str) or not isinstance(chosen, Executor)):
        raise unknown(executor)
    token = CURRENT.set(chosen)
    try:
        yield chosen
    finally:
        CURRENT.reset(token)
        if chosen is not executor and isinstance(chosen, WorkerPool):
            chosen.close()


def map_batches(
    model: Network,
    function: Callable[[Batch], Result],
    batches: Iterable[tuple[Label, Batch]],
) -> Generator[tuple[Label, Result]]:
    """Yield ``function(batch)`` for each batch, in their order, on the executor of this context.

    Without workers, each is computed here when it is asked for. Workers get the function once, and
    each batch is read when one can take it, at most four for each worker ahead of the result that
    is used; batches may thus be more than memory holds. A worker that ends is replaced and its
    batch run again. The results are the same bit for bit, if workers have as many threads; those of
    a GPU arrive on the CPU.

    Args:
        model: the model. Where the function refers to it, or to its modules and weights, it gets
            those of the worker.
        function: a function of a module, a partial of one, or with cloudpickle any function. Its
            results are sent back.
        batches: each batch with a label, which stays here: it names the batch in messages.

    Yields:
        Each label with the result of its batch.

    Raises:
        InvalidInput: the function can't be sent.
        WorkerFailed: a batch has ended three workers; the results before it were yielded.

    Examples:
        >>> model = interp.load("python-2l")
        >>> texts = [("first", "def f(x):"), ("second", "class A:")]
        >>> for label, loss in interp.executors.map_batches(model, len, texts):
        ...     print(label, loss)
        first 9
        second 8
    """
    chosen = CURRENT.get()
    if isinstance(chosen, WorkerPool):
        yield from chosen.map(model, function, batches)
    else:
        yield from map_here(function, batches)


def current_name() -> str:
    """The executor of this context, as text."""
    chosen = CURRENT.get()
    return chosen if isinstance(chosen, str) else repr(chosen)


def current_threads() -> int:
    """Threads of PyTorch with which the sweeps of this context compute: of each worker, or here.

    Values are the same bit for bit only with as many threads.
    """
    chosen = CURRENT.get()
    threads = chosen.threads if isinstance(chosen, WorkerPool) else None
    return threads or torch.get_num_threads()


def set_threads_of_workers(threads: int) -> None:
    """Let the workers of this context, if there are any, have so many threads of PyTorch.

    Those that have started with other ones are started again.
    """
    chosen = CURRENT.get()
    if isinstance(chosen, WorkerPool) and chosen.threads != threads:
        chosen.close()
        chosen.threads = threads


def start_workers(model: Network) -> None:
    """Start the workers of this context, if there are any, and let them load a model."""
    chosen = CURRENT.get()
    if isinstance(chosen, WorkerPool):
        chosen.prepare(model)


def by_name(requested: object) -> Executor:
    """An executor for one sweep, whose workers end with it.

    Raises:
        InvalidInput: there is no executor of this name.
    """
    if not isinstance(requested, str) or requested not in KINDS:
        raise unknown(requested)
    kind = KINDS[requested]

    def executor(
        jobs: Iterable[Job], work: Callable[[Job], Iterator[Outcome]]
    ) -> Iterator[Outcome]:
        with kind() as pool:
            yield from pool(jobs, work)

    return executor


def unknown(requested: object) -> InvalidInput:
    """The error for something that is no executor."""
    names = ("local", *KINDS)
    near = nearest(requested, names) if isinstance(requested, str) else ""
    return InvalidInput(
        f"executor={shorten(requested)} is not one of {', '.join(names)}, nor a function "
        f"(jobs, work) that yields what work(job) yields.{near}"
    )
