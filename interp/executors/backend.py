"""What the driver needs of its workers: to start them, to send requests, to hear what happened."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from interp.executors.transfer import Snapshot
from interp.executors.worker_server import Settings


@dataclass(frozen=True, eq=False)
class ModelSpec:
    """A model for the workers.

    Attributes:
        weights: its weight hash.
        dtype: the data type of its weights.
        settings: settings of PyTorch that its numbers depend on.
        snapshot: the model itself; ``None`` if workers load it from ``source``.
        source: a name or folder for :func:`interp.load`.
    """

    weights: str
    dtype: torch.dtype
    settings: Settings
    snapshot: Snapshot | None
    source: str | None

    def close(self) -> None:
        """Delete the temporary file."""
        if self.snapshot is not None:
            self.snapshot.close()


@dataclass(frozen=True, eq=False)
class Event:
    """Something that happened to a worker.

    Attributes:
        worker: its number.
        kind: ``hello``: it has started (value: its facts); ``loaded``: it has loaded the model
            (value: the weight hash, or an exception); ``done``: it has run a part (value: the
            pickle of its reply); ``ended``: its process has ended (value: how).
        value: see ``kind``.
    """

    worker: int
    kind: Literal["hello", "loaded", "done", "ended"]
    value: Any


@dataclass(frozen=True, eq=False)
class Request:
    """Groups of a job, or a batch of a pass, for a worker.

    Attributes:
        header: the job, or the function; ``None`` if the worker's last request was of the same.
        groups: the groups or the batch, pickled.
    """

    header: bytes | None
    groups: Sequence[bytes]


class Backend(ABC):
    """The workers of an executor, by their numbers; none of the calls but ``events`` waits."""

    @abstractmethod
    def start(self, worker: int, place: int) -> None:
        """Start a worker, which will say hello.

        Args:
            worker: its number, which no worker had before.
            place: which of the places for workers it takes, from 0: a replaced worker's place.
        """

    @abstractmethod
    def load(self, worker: int, model: ModelSpec) -> None:
        """Let a worker load a model."""

    @abstractmethod
    def run(self, worker: int, request: Request) -> None:
        """Let a worker run groups, after what it was asked before."""

    @abstractmethod
    def events(self, timeout: float) -> list[Event]:
        """Wait until something happens, at most ``timeout`` seconds."""

    @abstractmethod
    def kill(self, worker: int) -> None:
        """End a worker that does not answer; events will say that it has ended."""

    @abstractmethod
    def why_none(self) -> str:
        """What may be the reason, and what to do, if no worker gets ready."""

    @abstractmethod
    def close(self) -> None:
        """End all workers at once."""
