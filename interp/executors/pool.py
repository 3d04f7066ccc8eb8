"""What the executors have in common: workers that are started once and used by many sweeps."""

import math
import threading
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, SupportsFloat, TypeVar

import torch

from interp.errors import InvalidInput, shorten
from interp.execution import free_bytes, size_of
from interp.executors.backend import Backend, ModelSpec
from interp.executors.dispatch import StartedWorkers
from interp.executors.passes import Function, OpenPass, PassDispatch
from interp.executors.sweep_dispatch import SweepDispatch
from interp.executors.transfer import Snapshot
from interp.executors.worker_server import Settings
from interp.integers import at_least
from interp.model import Network, weight_hash
from interp.sweeps import Job, Outcome, Worker

Pool = TypeVar("Pool", bound="WorkerPool")
SHARE = 0.25
"""Share of a machine's free memory that the forwards of its workers may take by default."""
JOB_TIMEOUT = 3600.0
"""Seconds within which a worker must answer by default: far more than any forward should take."""


class WorkerPool(ABC):
    """An executor whose workers are started by its first sweep or pass, and end when it is closed.

    All sweeps and passes of one model use the same workers, which have loaded it once; the next
    model takes its place. Several threads may use one pool, one after the other. It is closed by
    :meth:`close`, at the end of a ``with`` block, with the program, or when it is no longer
    referenced.

    Attributes:
        workers: number of workers; ``None`` if the cluster decides.
        threads: threads of PyTorch in each worker, which affect rounding.
        job_timeout: seconds within which a worker must answer what it was sent, before it is ended
            and replaced; ``None`` for any time.
    """

    workers: int | None
    threads: int | None

    def __init__(self, source: str | None, timeout: object, job_timeout: object) -> None:
        self._source, self._timeout = source, positive(timeout, "timeout") or 0.0
        self.job_timeout = positive(job_timeout, "job_timeout")
        self._started: StartedWorkers | None = None
        self._model: tuple[Callable[[], Network | None], tuple[object, ...]] | None = None
        self._lock, self._owner = threading.Lock(), 0

    def __call__(
        self, jobs: Iterable[Job], work: Callable[[Job], Iterator[Outcome]]
    ) -> Iterator[Outcome]:
        """Yield the outcomes of all jobs, as they arrive; the order varies, the values do not.

        Args:
            jobs: the jobs of a sweep.
            work: runs a job, as :class:`interp.sweeps.Worker` does.

        Raises:
            InvalidInput: ``work`` is another function; or a worker has another version of interp,
                of PyTorch or of the weights.
            WorkerFailed: a job has ended three workers (raised when the others are done), or an
                exception that is not of this package was raised on one.
            OutOfResources: no worker could be started in time.
        """
        if not isinstance(work, Worker):
            raise InvalidInput(f"Workers run the jobs of interp.sweep, not {shorten(work)}.")
        listed = list(jobs)
        if not listed:
            return
        with self._alone():
            started = self._started_workers(work.restart_map.model)
            limit = self._limit(listed, work)
            started.start(limit)
            yield from SweepDispatch(started, listed, work, limit).outcomes()
            started.unclaimed.clear()

    def map(
        self, model: Network, function: Function, batches: Iterable[tuple[Any, Any]]
    ) -> Generator[tuple[Any, Any]]:
        """As :func:`map_batches`, on these workers.

        Raises:
            InvalidInput: the function can't be sent, or a worker has other versions or weights.
            WorkerFailed: a batch has ended three workers, or an exception that is not of this
                package was raised on one.
            OutOfResources: no worker could be started in time.
        """
        with self._alone():
            started = self._started_workers(model)
            started.start(started.n)
            opened = OpenPass.of(function, model)
            yield from PassDispatch(started, opened, batches, started.n).results()
            started.unclaimed.clear()

    def prepare(self, model: Network, *, every: bool = False) -> None:
        """Start the workers and let them load a model, which the first sweep does otherwise.

        Args:
            model: the model.
            every: whether to wait until all of them have loaded it, and not only the first.

        Raises:
            InterpError: as for a sweep.
        """
        with self._alone():
            started = self._started_workers(model)
            started.start(started.n)
            started.wait(started.n if every else 1)

    def close(self) -> None:
        """End all workers at once, and delete what was written for them."""
        started, self._started, self._model = self._started, None, None
        if started is not None:
            started.close()

    def __enter__(self: Pool) -> Pool:
        """The pool, which is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    @abstractmethod
    def _start(self, model: Network) -> tuple[Backend, int]:
        """What starts workers, and their number."""

    @abstractmethod
    def _at_once(self, need: int, budget: int) -> int | None:
        """Number of workers for whose forwards there is memory; ``None`` if others see to it."""

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Let one thread after the other use the workers.

        Raises:
            InvalidInput: this thread is using them already.
        """
        if self._owner == threading.get_ident():
            raise InvalidInput(
                f"{self!r} is running a sweep or a pass, which started another one, such as in its "
                "metric; give the inner one executor='local', or interp.use(executor='local')."
            )
        with self._lock:
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = 0

    def _started_workers(self, model: Network) -> StartedWorkers:
        """The workers, which load the model if they have another one."""
        if model.other_devices:
            raise InvalidInput(
                "The layers of this model lie on several devices, and each worker of an executor "
                'holds the model on one device: sweep it in this process (executor="local").'
            )
        if self._started is None:
            backend, n = self._start(model)
            self._started = StartedWorkers(backend, n, self._timeout, self.job_timeout)
            weakref.finalize(self, self._started.close)
        self._started.drain()  # before another model is loaded
        weights, settings = weight_hash(model), Settings.here()
        depends = weights, model.products, settings
        if self._model is None or self._model[0]() is not model or self._model[1] != depends:
            snapshot = Snapshot.of(model) if self._source is None else None
            self._started.use(ModelSpec(weights, model.dtype, settings, snapshot, self._source))
            self._model = weakref.ref(model), depends
        return self._started

    def _limit(self, jobs: list[Job], work: Worker) -> int:
        """Number of workers that run at a time: as many as there are, and memory for."""
        n = 1 if self._started is None else self._started.n
        largest = max(jobs, key=lambda job: job.batches[-1].ids.numel())
        size, prompts, copies = work.footprint(largest), len(largest.rows), work.copies(largest)
        need = prompts * (size.peak * copies + size.stored)
        at_once = self._at_once(need, work.budget.nbytes)
        limit = n if at_once is None else max(1, min(n, at_once))
        if limit < n:
            warnings.warn(
                f"{limit} of {n} workers run at a time: a forward of this sweep takes about "
                f"{size_of(need)}, and there is no memory for more. Give each sweep less with "
                "memory=, or the executor more.",
                ResourceWarning,
                stacklevel=2,
            )
        return limit


def checked_number(value: object, name: str) -> int | None:
    """The argument ``name``, an integer of at least 1 or ``None``.

    Raises:
        InvalidInput: it is neither.
    """
    return None if value is None else at_least(1, value, name)


def positive(value: object, name: str) -> float | None:
    """The argument ``name``, a positive number or ``None``.

    Raises:
        InvalidInput: it is neither.
    """
    if value is None:
        return None
    number = 0.0
    if isinstance(value, SupportsFloat) and not isinstance(value, bool):
        number = float(value)
    if not math.isfinite(number) or number <= 0:
        raise InvalidInput(f"{name}={shorten(value)} should be a positive number.")
    return number


def workers_within(need: int, memory: float | None, budget: int) -> int:
    """Number of workers of one machine whose forwards fit into its memory.

    Args:
        need: bytes that the forwards of one worker take.
        memory: bytes that all may take; ``None``: a quarter of the free memory, and no less than
            the sweep may take.
        budget: bytes that the sweep may take.
    """
    total = max(budget, int(free_bytes(torch.device("cpu")) * SHARE)) if memory is None else memory
    return int(total // max(1, need))
