"""What a worker does: loads the model once, then runs batched forwards that the driver chose.

A request is a job (its prompts and its metric) with some of its groups: cases that run as one
forward. Which cases run as one was decided by the driver, from the whole job, so the values do not
depend on which worker computes them, nor on how many there are. Or it is a function and a batch of
a pass (see :mod:`interp.executors.passes`).
"""

import hashlib
import os
import platform
import socket
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from interp.errors import HookFailed, InterpError, WorkerFailed, first_line
from interp.execution import versions
from interp.executors.transfer import dumps, load_snapshot, loads
from interp.model import Batch, Network, weight_hash
from interp.points import Place
from interp.sweeps import Budget, Case, Job, Outcome, RestartMap, StartedJob, Worker

Group = tuple[tuple[Case, ...], int]
"""The cases of one forward, and its first column."""


@dataclass(frozen=True, eq=False)
class SentCase(Case):
    """A case whose edits are already restricted to the prompts of its job."""

    def for_rows(self, rows: Sequence[int], n: int) -> Any:  # noqa: ANN401, ARG002 - as of a case
        """The edits as they are."""
        return self.edits


@dataclass(frozen=True, eq=False)
class Outline(Case):
    """What the baseline of a job depends on in one of its cases, without the edits.

    Attributes:
        column: its first column.
        reads: the places that its edits read.
    """

    column: int = 0
    reads: frozenset[Place] = frozenset()

    def first_column(self, restart_map: RestartMap, batches: Sequence[Batch]) -> int:  # noqa: ARG002
        """The first column, which the driver computed."""
        return self.column

    @property
    def earlier(self) -> set[Place]:
        """The places that its edits read."""
        return set(self.reads)


@dataclass(frozen=True)
class Facts:
    """What must be the same in the driver and in a worker, and which process it is.

    Attributes:
        versions: of Python, torch and interp, and a digest of interp's code.
        host: name of the machine.
        pid: the process.
    """

    versions: dict[str, str]
    host: str
    pid: int

    @classmethod
    def here(cls) -> "Facts":
        """The facts of this process."""
        facts = {**versions(), "code of interp": code_digest()}
        return cls(facts, socket.gethostname(), os.getpid())

    def differences(self, driver: "Facts") -> list[str]:
        """What differs from the driver, in words."""
        return [
            f"{name} {self.versions.get(name, 'none')}, but {version} in the driver"
            for name, version in driver.versions.items()
            if self.versions.get(name) != version
        ]


@dataclass(frozen=True)
class Settings:
    """Settings of PyTorch that numbers depend on, which workers take over.

    Attributes:
        dtype: the default data type.
        precisions: rounding of float32 products: of all devices, of CPUs and of GPUs.
    """

    dtype: torch.dtype
    precisions: tuple[str, ...]

    @classmethod
    def here(cls) -> "Settings":
        """The settings of this process."""
        return cls(torch.get_default_dtype(), tuple(b.fp32_precision for b in _backends()))

    def apply(self) -> None:
        """Let this process have these settings."""
        torch.set_default_dtype(self.dtype)
        for backend, precision in zip(_backends(), self.precisions, strict=True):
            if backend.fp32_precision != precision:
                backend.fp32_precision = precision


def _backends() -> tuple[Any, ...]:
    """What has a setting ``fp32_precision``."""
    every: Any = torch.backends
    return every, every.mkldnn.matmul, every.cuda.matmul


def _spec(package: str) -> ModuleSpec | None:
    """Where a package is found; ``None`` if it is not, as those whose code is not in files."""
    try:
        return find_spec(package)
    except (ImportError, ValueError):
        return None


@cache
def code_digest(package: str = "interp") -> str:
    """The first digits of the SHA-256 of a package's Python files; empty without such files."""
    spec = None if package == "__main__" or not package else _spec(package)
    file = None if spec is None else spec.origin
    if file is None or Path(file).name != "__init__.py":
        return ""
    root, digest = Path(file).parent, hashlib.sha256(platform.python_version().encode())
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:12]


@dataclass(frozen=True)
class Reply:
    """The answer of a worker to one request.

    Attributes:
        outcomes: one per group, in order: rows of numbers; of a pass, what the function returned.
        seconds: the time that the groups took, without the baseline.
        error: what was raised instead.
    """

    outcomes: tuple[tuple[Any, ...], ...] = ()
    seconds: float = 0.0
    error: BaseException | None = None


class PartWorker(Worker):
    """Runs groups of a job that the driver formed, after the baseline of the whole job."""

    def run(self, started: StartedJob, group: Group) -> Iterator[Outcome]:
        """Yield the outcomes of one group."""
        cases, first_column = group
        for part in self.split(cases):
            yield from self.outcomes(started, part, first_column)

    def case_that_fails(self, started: StartedJob, group: Group) -> str:
        """The name of the first case that raises an error by itself; of all, if none does."""
        for case in group[0]:
            try:
                list(self.run(started, ((case,), group[1])))
            except Exception:  # whatever it raises is reported by the caller
                return str(case)
        return labels(group[0])


@runtime_checkable
class Sent(Protocol):
    """What a header holds: a job, or the function of a pass."""

    def opened(self, worker: PartWorker) -> "Running":
        """Prepare for groups or batches."""
        ...


@runtime_checkable
class Running(Protocol):
    """What a header holds, prepared by a worker."""

    def outcomes(self, group: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a group, or a batch
        """The outcomes of a group, or of a batch."""
        ...


@dataclass(frozen=True, eq=False)
class SentJob:
    """A job as it is sent, with outlines of its cases.

    Attributes:
        job: the job.
        budget: the memory that its forwards may take.
    """

    job: Job
    budget: Budget

    def opened(self, worker: PartWorker) -> "RunningJob":
        """Compute the baseline."""
        worker.budget = self.budget
        try:
            return RunningJob(worker, worker.start(self.job))
        except InterpError:
            raise
        except Exception as error:  # of a function given as the metric
            raise WorkerFailed(f"Without an edit: {text_of(error)}") from error


@dataclass(frozen=True, eq=False)
class RunningJob:
    """A job with its baseline."""

    worker: PartWorker
    started: StartedJob

    def outcomes(self, group: Group) -> tuple[Outcome, ...]:
        """The outcomes of a group; an error that depends on the case names it."""
        try:
            return tuple(self.worker.run(self.started, group))
        except Exception as error:
            if isinstance(error, InterpError) and not isinstance(error, HookFailed):
                raise  # the message names the case where it depends on it
            kind = HookFailed if isinstance(error, HookFailed) else WorkerFailed
            case = self.worker.case_that_fails(self.started, group)
            raise kind(f"{case}: {text_of(error)}") from error


SHOWN = 3
"""Maximum number of cases that a message names."""


def labels(cases: Sequence[Case]) -> str:
    """The names of some cases."""
    more = f" and {len(cases) - SHOWN} more" if len(cases) > SHOWN else ""
    return ", ".join(map(str, cases[:SHOWN])) + more


@dataclass
class WorkerServer:
    """One worker: a model, and what it runs.

    Attributes:
        number: its number.
        threads: threads of PyTorch; ``None`` leaves them as they are.
        device: its device.
    """

    number: int
    threads: int | None
    device: str = "cpu"
    _worker: PartWorker | None = field(default=None, init=False)
    _running: Running | None = field(default=None, init=False)
    _facts: Facts = field(default_factory=Facts.here, init=False)

    def __post_init__(self) -> None:
        if self.threads is not None:
            torch.set_num_threads(self.threads)

    def facts(self) -> Facts:
        """Versions, machine and process."""
        return self._facts

    def load(self, settings: Settings, skeleton: bytes, data: Tensor) -> str | BaseException:
        """Load the model of a snapshot; its weight hash, or what was raised."""
        try:
            settings.apply()
            return self.take(load_snapshot(skeleton, data, self.device))
        except Exception as error:  # reported to the driver
            return self._portable(error, ", while it loaded the model")

    def load_from(self, settings: Settings, source: str, dtype: torch.dtype) -> str | BaseException:
        """Load the model from a source that this machine has; its weight hash, or the error."""
        try:
            settings.apply()
            load = import_module("interp.loading").load  # of a room above this one
            return self.take(load(source, self.device, dtype=dtype))
        except Exception as error:  # reported to the driver
            return self._portable(error, f", while it loaded {source!r}")

    def take(self, model: Network) -> str:
        """Use a model; its weight hash."""
        self._running = None
        self._worker = PartWorker(RestartMap(model), Budget.of(model, None))
        return weight_hash(model)

    def run(self, header: bytes | None, groups: Sequence[bytes]) -> bytes:
        """Run some groups of a job, or a batch; the pickle of a :class:`Reply`.

        Args:
            header: a :class:`Sent` job or function, pickled; ``None`` if it is that of the last
                call.
            groups: pickles of groups, or of a batch.
        """
        try:
            return dumps(self._run(header, groups))
        except Exception as error:  # reported to the driver
            return dumps(Reply(error=self._portable(error)))

    def _run(self, header: bytes | None, groups: Sequence[bytes]) -> Reply:
        worker = self._worker
        if worker is None:
            raise WorkerFailed("No model was loaded before the first job.")
        if header is not None:
            self._running = None  # free its memory before the next baseline is computed
            sent: Sent = loads(header, self.device, worker.restart_map.model)
            self._running = sent.opened(worker)
        if self._running is None:
            raise WorkerFailed("What the last header holds could not be prepared.")
        begin = time.perf_counter()
        outcomes = [self._running.outcomes(loads(data, self.device)) for data in groups]
        return Reply(tuple(outcomes), time.perf_counter() - begin)

    def _portable(self, error: Exception, when: str = "") -> BaseException:
        """An error with the name of this worker, of a class that the driver can read."""
        kind = type(error) if type(error).__module__ == InterpError.__module__ else WorkerFailed
        portable = kind(f"{text_of(error)} ({self.name}{when})")
        portable.add_note("".join(traceback.format_exception(error)))
        return portable

    @property
    def name(self) -> str:
        """Its number, its process and its machine."""
        return f"worker {self.number}, process {self._facts.pid} on {self._facts.host}"


def text_of(error: Exception) -> str:
    """The message of an error of this package; of another, its class and the first line."""
    is_ours = isinstance(error, InterpError)
    return str(error) if is_ours else f"{type(error).__name__}: {first_line(error)}"
