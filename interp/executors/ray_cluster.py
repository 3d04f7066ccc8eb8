"""Workers that are actors of Ray, on this machine or on a cluster.

Weights go into Ray's object store once, which all workers of a machine read in place. Ray starts a
worker where its share of CPUs, GPUs and memory is free, and ends it when the driver ends.
"""

import os
import socket
import subprocess
import sys
import time
import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from interp.errors import InvalidInput, OutOfResources, first_line, shorten
from interp.executors.backend import Backend, Event, ModelSpec, Request
from interp.executors.pool import (
    JOB_TIMEOUT,
    WorkerPool,
    checked_number,
    positive,
    workers_within,
)
from interp.executors.transfer import mapped
from interp.executors.worker_server import Settings, WorkerServer
from interp.model import Network

REACH = 10.0
"""Seconds within which an address must answer."""
IDLE = 0.05
"""Seconds of a wait for events if nothing was asked of any worker."""
MISSING = "executor='ray' needs Ray, which is not installed. Run: pip install 'interp[ray]'"


def ray_library() -> Any:  # noqa: ANN401 - a library that need not be installed
    """The library Ray.

    Raises:
        InvalidInput: it is not installed.
    """
    try:
        return import_module("ray")
    except ImportError as error:
        raise InvalidInput(MISSING) from error


def is_installed(library: str) -> bool:
    """Whether a library can be imported; it is not."""
    try:
        return find_spec(library) is not None
    except (ImportError, ValueError):
        return False


class Ray(WorkerPool):
    """Runs sweeps on a Ray cluster: ``interp.sweep(..., executor=Ray(address="auto"))``.

    Values are those of a local sweep: the same prompts and edits run together, whatever the number
    of workers. They are the same bit for bit if workers have as many threads on alike processors.
    A program that has called ``ray.init`` keeps its connection.

    Args:
        workers: number of workers; by default as many as the cluster has CPUs, or GPUs if the model
            is on one.
        address: ``None``: the cluster of the environment variable ``RAY_ADDRESS``, or a new one on
            this machine, which ends with the executor. ``"auto"``: the one that runs on this
            machine. Otherwise ``host:port`` or ``ray://host:port``.
        cpus: CPUs that each worker reserves, also less than one; by default those of the cluster
            are divided by ``workers``, and 1 without ``workers``.
        gpus: GPUs that each reserves; by default 1 if the model is on a GPU, else 0.
        threads: threads of PyTorch in each worker; by default its CPUs.
        memory: as for :class:`Processes`, on a cluster that this executor starts; bytes of memory
            that each worker reserves, on another.
        source: what each worker loads the model from, as :func:`interp.load` takes it, such as a
            folder that all machines have; by default it gets that of this process.
        timeout: seconds within which the first worker must have loaded the model.
        job_timeout: as for :class:`Processes`.

    Raises:
        InvalidInput: Ray is not installed, or a number is not positive.

    Examples:
        >>> interp.executors.Ray(workers=2, address="auto")
        Ray(workers=2, address='auto')
    """

    def __init__(  # noqa: PLR0913 - independent options, all but the first by keyword
        self,
        workers: int | None = None,
        *,
        address: object = None,
        cpus: object = None,
        gpus: object = None,
        threads: int | None = None,
        memory: object = None,
        source: str | None = None,
        timeout: object = 300.0,
        job_timeout: object = JOB_TIMEOUT,
    ) -> None:
        super().__init__(source, timeout, job_timeout)
        if not is_installed("ray"):
            raise InvalidInput(MISSING)
        self.workers = checked_number(workers, "workers")
        self.threads = checked_number(threads, "threads")
        self.address = checked_address(address)
        self._shares = positive(cpus, "cpus"), positive(gpus, "gpus")
        self._memory = positive(memory, "memory")
        self._is_ours = False

    def __repr__(self) -> str:
        """Its number of workers, and the cluster."""
        return f"Ray(workers={self.workers}, address={self.address!r})"

    def close(self) -> None:
        """End all workers, and the cluster or the connection if this executor made it."""
        super().close()
        self._is_ours = False

    def _start(self, model: Network) -> tuple[Backend, int]:
        ray = ray_library()
        if not ray.is_initialized():
            connect(ray, self.address)
            self._is_ours = True
        total, on_gpu = ray.cluster_resources(), model.device.type == "cuda"
        available = float(total.get("GPU" if on_gpu else "CPU", 0.0))
        cpus, gpus = self._shares
        if cpus is None:
            cpus = max(1.0, total.get("CPU", 1.0) // self.workers) if self.workers else 1.0
        gpus = float(on_gpu) if gpus is None else gpus
        share = gpus if on_gpu else cpus
        n = self.workers or max(1, int(available // max(share, 1e-9)))
        self.threads = self.threads or max(1, int(cpus))
        options: dict[str, Any] = {"num_cpus": cpus, "num_gpus": gpus}
        if self._memory is not None and not self._is_local:
            options["memory"] = int(self._memory)
        device = "cuda" if on_gpu else "cpu"
        return RayBackend(ray, options, self.threads, device, ends_cluster=self._is_ours), n

    @property
    def _is_local(self) -> bool:
        """Whether the cluster is one that this executor started on this machine."""
        return self._is_ours and self.address is None and not os.environ.get("RAY_ADDRESS")

    def _at_once(self, need: int, budget: int) -> int | None:
        if not self._is_local:
            return None  # each machine has memory of its own, which Ray plans
        return workers_within(need, self._memory, budget)


def checked_address(address: object) -> str | None:
    """The address of a cluster.

    Raises:
        InvalidInput: it has another form than ``auto``, ``host:port`` and ``ray://host:port``.
    """
    if address is None or address in ("auto", "local"):
        return None if address == "local" else address  # pyright: ignore[reportReturnType]
    if isinstance(address, str) and host_and_port(address) is not None:
        return address
    raise InvalidInput(
        f"address={shorten(address)} should be 'auto', host:port as `ray start` prints it, or "
        "ray://host:port."
    )


def host_and_port(address: str) -> tuple[str, int] | None:
    """The host and the port of an address; ``None`` if it has another form."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    is_port = port.isdecimal() and 0 < int(port) < 2**16
    return (host.strip("[]"), int(port)) if colon and host and is_port else None


def connect(ray: Any, address: str | None) -> None:  # noqa: ANN401 - a library
    """Connect to a cluster, or start one on this machine.

    Raises:
        InvalidInput: the address does not answer in time, or has another version of Ray or Python.
    """
    address = address or os.environ.get("RAY_ADDRESS") or None
    if address is not None and address not in ("auto", "local"):
        check_reachable(address)
    options: dict[str, Any] = {"log_to_driver": True, "logging_level": "warning"}
    if address is None:
        options |= {"address": "local", "include_dashboard": False}
    else:
        options |= {"address": address}
    try:
        ray.init(**options)
    except (ConnectionError, ImportError, RuntimeError, ValueError, TimeoutError) as error:
        raise InvalidInput(
            f"No Ray cluster can be used at address={address or 'local'!r}: {first_line(error)} "
            "Start one with `ray start --head`, or leave out the address for one on this machine."
        ) from error


def check_reachable(address: str) -> None:
    """Check that a cluster answers, within a few seconds; Ray by itself would wait for minutes.

    Raises:
        InvalidInput: it does not.
    """
    place = host_and_port(address)
    reason = "it is not host:port"
    if place is not None:
        reason = f"nothing answers there within {REACH:.0f} s"
        try:
            with socket.create_connection(place, timeout=REACH):
                if address.startswith("ray://") or is_healthy(*place):
                    return
            reason = "what answers there is not a Ray cluster of this version"
        except OSError as error:
            reason = error.strerror or reason
    raise InvalidInput(
        f"No Ray cluster can be used at address={address!r}: {reason}. `ray status` on its head "
        "shows whether it runs; `ray start --head` prints the address to give."
    )


def is_healthy(host: str, port: int) -> bool:
    """Whether the head of a cluster answers; asked by another process, which can be stopped."""
    words = ["-m", "ray.scripts.scripts", "health-check", "--address", f"{host}:{port}"]
    try:
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, timeout=2 * REACH, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


class RayServer(WorkerServer):
    """A worker in an actor of Ray."""

    def load_block(
        self,
        settings: Settings,
        skeleton: bytes,
        block: Any,  # noqa: ANN401 - an array of NumPy
    ) -> str | BaseException:
        """Load a model whose weights are an array of bytes in the object store."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given (NumPy array|buffer) is not writ")
            return self.load(settings, skeleton, torch.from_numpy(block))


class RayBackend(Backend):
    """Actors of Ray.

    Args:
        ray: the library, connected to a cluster.
        options: the resources of an actor.
        threads: threads of PyTorch in each.
        device: kind of device.
        ends_cluster: whether closing it ends the cluster, or the connection to it.
    """

    def __init__(
        self,
        ray: Any,  # noqa: ANN401 - a library
        options: dict[str, Any],
        threads: int,
        device: str,
        *,
        ends_cluster: bool,
    ) -> None:
        self._ray, self._options, self._ends_cluster = ray, options, ends_cluster
        self._threads, self._device = threads, device
        self._actor: Any = ray.remote(max_restarts=0, max_task_retries=0)(RayServer)
        self._actors: dict[int, Any] = {}
        self._pending: dict[Any, tuple[int, str]] = {}
        self._block: tuple[ModelSpec, Any] | None = None

    def start(self, worker: int, place: int) -> None:  # noqa: ARG002 - Ray chooses the place
        """Ask Ray for an actor."""
        actor = self._actor.options(**self._options).remote(worker, self._threads, self._device)
        self._actors[worker] = actor
        self._expect(worker, "hello", actor.facts.remote())

    def load(self, worker: int, model: ModelSpec) -> None:
        """Send the model through the object store, or from where to load it."""
        actor = self._actors[worker]
        if model.snapshot is None:
            loaded = actor.load_from.remote(model.settings, model.source, model.dtype)
            self._expect(worker, "loaded", loaded)
            return
        if self._block is None or self._block[0] is not model:
            snapshot = model.snapshot
            data: np.ndarray[Any, Any] = mapped(snapshot.file.fileno(), snapshot.nbytes).numpy()
            self._block = model, self._ray.put(data)
        loaded = actor.load_block.remote(model.settings, model.snapshot.skeleton, self._block[1])
        self._expect(worker, "loaded", loaded)

    def run(self, worker: int, request: Request) -> None:
        """Send groups of a job, or a batch."""
        reply = self._actors[worker].run.remote(request.header, [*request.groups])
        self._expect(worker, "done", reply)

    def events(self, timeout: float) -> list[Event]:
        """Wait for replies, and for actors that have died."""
        if not self._pending:
            time.sleep(min(timeout, IDLE))
            return []
        ready, _ = self._ray.wait([*self._pending], num_returns=1, timeout=timeout)
        if ready:  # all that are there
            ready, _ = self._ray.wait(
                [*self._pending], num_returns=len(self._pending), timeout=0, fetch_local=False
            )
        events = [self._event(reference) for reference in ready]
        return [event for event in events if event is not None]

    def kill(self, worker: int) -> None:
        """Kill an actor, upon which its replies are errors."""
        self._ray.kill(self._actors[worker])

    def why_none(self) -> str:
        """The resources that each worker asks for, and those that the cluster has."""
        wanted = {name: value for name, value in self._options.items() if value}
        total = {
            name: value
            for name, value in self._ray.cluster_resources().items()
            if name in ("CPU", "GPU", "memory")
        }
        return (
            f"Each worker asks for {wanted}, the cluster has {total}. Ask for less with cpus=, "
            "gpus= or memory=, or give timeout= more seconds, if machines or the model take long."
        )

    def close(self) -> None:
        """Kill all actors."""
        actors, self._actors = [*self._actors.values()], {}
        self._pending.clear()
        self._block = None
        if self._ray.is_initialized():
            for actor in actors:
                self._ray.kill(actor)
            if self._ends_cluster:
                self._ray.shutdown()
        self._ends_cluster = False

    def _expect(self, worker: int, kind: str, reference: Any) -> None:  # noqa: ANN401
        self._pending[reference] = worker, kind

    def _event(self, reference: Any) -> Event | None:  # noqa: ANN401 - a reference of Ray
        if reference not in self._pending:
            return None
        worker, kind = self._pending.pop(reference)
        try:
            return Event(worker, kind, self._ray.get(reference))  # pyright: ignore[reportArgumentType]
        except self._ray.exceptions.RayError as error:
            return self._ended(worker, error)

    def _ended(self, worker: int, error: Exception) -> Event:
        """The end of an actor.

        Raises:
            InvalidInput: it could not be set up, as interp is missing on its machine.
            OutOfResources: the object store has no room.
        """
        text = " ".join(str(error).split())
        if "ModuleNotFoundError" in text or "ImportError" in text:
            missing = text[max(0, text.rfind("ModuleNotFoundError")) :][:200]
            raise InvalidInput(
                f"Worker {worker} can't import what it needs: {missing} Install the same version "
                "of interp on all machines of the cluster."
            ) from error
        if isinstance(error, self._ray.exceptions.ObjectStoreFullError):
            raise OutOfResources(f"Ray's object store is full: {first_line(error)}") from error
        self._actors.pop(worker, None)
        self._pending = {ref: value for ref, value in self._pending.items() if value[0] != worker}
        return Event(worker, "ended", f"ended: {shorten(text)}")
