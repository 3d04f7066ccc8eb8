"""Workers that are processes of this machine: one per share of its CPU, or one per GPU.

They are started afresh, not forked, and do not run the main script again. Each is connected to the
driver by a pair of sockets, and ends when the driver's end is closed: also if the driver is killed.
"""

import os
import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

import torch

from interp.errors import InvalidInput, shorten
from interp.executors.backend import Backend, Event, ModelSpec, Request
from interp.executors.pool import JOB_TIMEOUT, WorkerPool, checked_number, positive, workers_within
from interp.model import Network

GRACE = 5.0
"""Seconds in which a process ends by itself when its connection is closed."""
MOST = 8
"""Maximum number of workers by default."""
START = """
import sys
sys.path[:] = {path!r}
from interp.executors.process_worker import main
main({args})
"""
"""What a worker runs: with the import path of the driver, but not its main script."""


class Processes(WorkerPool):
    """Runs sweeps in processes of this machine: ``interp.sweep(..., executor=Processes(8))``.

    Weights are written to a temporary file once, which all workers map into memory. Values are
    those of a local sweep: the same prompts and edits run together, whatever the number of workers.
    They are the same bit for bit if workers have as many threads.

    Args:
        workers: number of workers; by default one per GPU if the model is on one, otherwise one per
            thread that PyTorch uses, at most 8.
        threads: threads of PyTorch in each worker; by default those of this process are divided.
        devices: the device of each worker, by default all GPUs or ``("cpu",)``; if there are more
            workers than devices, they take them in turn.
        memory: bytes that the forwards of all workers on the CPU may take together; by default a
            quarter of the free memory, or what the sweep may take, if that is more.
        source: what each worker loads the model from, as :func:`interp.load` takes it; by default
            it gets that of this process.
        timeout: seconds within which the first worker must have loaded the model.
        job_timeout: seconds within which a worker must answer what it was sent, which is about a
            quarter of a second of work, or a single forward or batch; otherwise it is ended and
            replaced, and another one gets the same again. ``None`` waits for any time.

    Raises:
        InvalidInput: ``workers`` or ``threads`` is not an integer of at least 1, or there are no
            such devices.

    Examples:
        >>> interp.executors.Processes(workers=2, threads=1)
        Processes(workers=2, threads=1)
    """

    def __init__(  # noqa: PLR0913 - independent options, all but the first by keyword
        self,
        workers: int | None = None,
        *,
        threads: int | None = None,
        devices: Sequence[str] | None = None,
        memory: object = None,
        source: str | None = None,
        timeout: object = 300.0,
        job_timeout: object = JOB_TIMEOUT,
    ) -> None:
        super().__init__(source, timeout, job_timeout)
        self.devices = None if devices is None else checked_devices(devices)
        self._memory = positive(memory, "memory")
        self._requested = checked_number(workers, "workers"), checked_number(threads, "threads")
        self._n_gpus = 0
        self.workers = self._requested[0] or default_workers(self.devices)
        self.threads = self._requested[1] or max(1, torch.get_num_threads() // self.workers)

    def __repr__(self) -> str:
        """Its number of workers and their threads."""
        return f"Processes(workers={self.workers}, threads={self.threads})"

    def _start(self, model: Network) -> tuple[Backend, int]:
        devices = self.devices or default_devices(model.device)
        if torch.device(devices[0]).type != model.device.type:
            raise InvalidInput(
                f"devices={shorten(devices)}, but the model is on {model.device}: load it on the "
                "kind of device that the workers have."
            )
        on_gpu = torch.device(devices[0]).type != "cpu"
        self._n_gpus = len(devices) if on_gpu else 0
        n = self._requested[0] or (len(devices) if on_gpu else self.workers or 1)
        return ProcessBackend(devices, self.threads or 1, self.job_timeout), n

    def _at_once(self, need: int, budget: int) -> int:
        if self._n_gpus:
            return self._n_gpus * max(1, budget // max(1, need))
        return workers_within(need, self._memory, budget)


def default_workers(devices: Sequence[str] | None) -> int:
    """One worker per device, or per thread of PyTorch, at most :data:`MOST`."""
    if devices is not None and torch.device(devices[0]).type != "cpu":
        return len(devices)
    return min(MOST, torch.get_num_threads())


def default_devices(device: torch.device) -> tuple[str, ...]:
    """All GPUs, or the CPU."""
    if device.type != "cuda":
        return (str(device),)
    return tuple(f"cuda:{number}" for number in range(torch.cuda.device_count()))


def checked_devices(devices: object) -> tuple[str, ...]:
    """Names of devices of one kind.

    Raises:
        InvalidInput: there is none, one is not a device of PyTorch, or they are of two kinds.
    """
    try:
        names = (devices,) if isinstance(devices, str) else tuple(map(str, devices))  # pyright: ignore[reportArgumentType]
        kinds = {torch.device(name).type for name in names}
    except (TypeError, RuntimeError):
        names, kinds = (), set[str]()
    if len(kinds) != 1:
        raise InvalidInput(
            f"devices={shorten(devices)} should be names of one kind of device, such as "
            "('cuda:0', 'cuda:1')."
        )
    return names


@dataclass(frozen=True, eq=False)
class _Process:
    """A process and the driver's end of its connection."""

    process: "subprocess.Popen[bytes]"
    connection: Connection


class ProcessBackend(Backend):
    """Processes, each with a connection.

    Args:
        devices: the devices, which workers take in turn.
        threads: threads of PyTorch in each.
        patience: seconds after which a process that reads nothing, or stops in the middle of an
            answer, is ended; ``None`` waits for any time.
    """

    def __init__(self, devices: Sequence[str], threads: int, patience: float | None = None) -> None:
        self._devices, self._threads, self._patience = devices, threads, patience
        self._processes: dict[int, _Process] = {}

    def start(self, worker: int, place: int) -> None:
        """Start a process, in a group of its own, which Ctrl-C in a terminal does not reach."""
        ours, theirs = socket.socketpair()
        if self._patience is not None:
            limit = struct.pack("@ll", *divmod(int(self._patience * 1e6), 10**6))
            for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
                ours.setsockopt(socket.SOL_SOCKET, option, limit)
        args = (theirs.fileno(), worker, self._threads, self._devices[place % len(self._devices)])
        code = START.format(path=sys.path, args=", ".join(map(repr, args)))
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "OMP_NUM_THREADS": str(self._threads)},
                start_new_session=True,
            )
        self._processes[worker] = _Process(process, Connection(ours.detach()))

    def load(self, worker: int, model: ModelSpec) -> None:
        """Send the model: its pickle and the file of its weights, or from where to load it."""
        if model.snapshot is None:
            self._send(worker, ("load_from", model.settings, model.source, model.dtype))
            return
        snapshot = model.snapshot
        request = ("load", model.settings, snapshot.skeleton, snapshot.nbytes)
        if self._send(worker, request):
            connection = self._processes[worker].connection
            with socket.socket(fileno=os.dup(connection.fileno())) as ours:
                socket.send_fds(ours, [b"f"], [snapshot.file.fileno()])

    def run(self, worker: int, request: Request) -> None:
        """Send groups of a job."""
        self._send(worker, ("run", request.header, [*request.groups]))

    def events(self, timeout: float) -> list[Event]:
        """Wait for messages, and for connections that are closed."""
        workers = {each.connection: number for number, each in self._processes.items()}
        ready = wait([*workers], timeout)
        return [self._event(workers[end]) for end in ready if isinstance(end, Connection)]

    def kill(self, worker: int) -> None:
        """Kill a process, whose connection is then closed."""
        self._processes[worker].process.kill()

    def why_none(self) -> str:
        """What may be the reason that no process gets ready."""
        return (
            "A large model takes long to load: give timeout= more seconds; or see what the "
            "processes printed."
        )

    def close(self) -> None:
        """Close all connections, upon which the processes end; kill those that do not."""
        processes, self._processes = [*self._processes.values()], {}
        for each in processes:
            each.connection.close()
        for each in processes:
            _end(each.process)

    def _send(self, worker: int, message: object) -> bool:
        """Send a message; whether the process was there. If not, the next events have its end."""
        try:
            self._processes[worker].connection.send_bytes(pickle.dumps(message))
        except (BrokenPipeError, ConnectionResetError):
            return False
        except BlockingIOError:  # it has read nothing for as long as a job may take
            self.kill(worker)
            return False
        return True

    def _event(self, worker: int) -> Event:
        try:
            kind, value = pickle.loads(self._processes[worker].connection.recv_bytes())
        except (EOFError, OSError):
            each = self._processes.pop(worker)
            each.connection.close()
            return Event(worker, "ended", how_ended(_end(each.process)))
        return Event(worker, kind, value)


def _end(process: "subprocess.Popen[bytes]") -> int:
    """Wait for a process whose connection is closed; its exit code."""
    try:
        return process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def how_ended(code: int) -> str:
    """An exit code in words, negative for a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    memory = ", as the system does when memory is exhausted" if code == -9 else ""  # noqa: PLR2004
    return f"was ended by signal {-code}{memory}"
