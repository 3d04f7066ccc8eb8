"""Sends parts of work to workers, and replaces those that end or do not answer.

A worker has two parts at a time, one that it runs and one that waits, so that it never waits for
the driver and the driver never holds more than that. What the parts are made of, a sweep
(:mod:`interp.executors.sweep_dispatch`) or a pass (:mod:`interp.executors.passes`) decides.
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from interp.errors import InvalidInput, OutOfResources, WorkerFailed
from interp.executors.backend import Backend, Event, ModelSpec, Request
from interp.executors.jobs import Opened, Part
from interp.executors.transfer import loads
from interp.executors.worker_server import Facts, Reply

AT_A_TIME = 2
"""Number of parts that a worker has at a time: one that runs, and one that waits."""
TRIES = 3
"""A part that ends so many workers is given up."""
POLL = 1.0
"""Maximum seconds of one wait for events."""


@dataclass(eq=False)
class WorkerState:
    """One worker, as the driver sees it.

    Attributes:
        place: the place for workers that it takes.
        facts: its process and machine; ``None`` until it has said hello.
        loads: the models that it was asked to load and has not loaded yet, in order.
        parts: the parts that it was sent, in order; it runs the first.
        opened: the job or pass of the last of them.
        since: when it began to run the first of them, at the earliest.
        is_overdue: whether it was ended as it did not answer.
    """

    place: int
    facts: Facts | None = None
    loads: deque[ModelSpec] = field(default_factory=deque[ModelSpec])
    parts: deque[Part] = field(default_factory=deque[Part])
    opened: Opened | None = None
    since: float = 0.0
    is_overdue: bool = False

    @property
    def is_ready(self) -> bool:
        """Whether it has loaded the model."""
        return self.facts is not None and not self.loads

    @property
    def name(self) -> str:
        """Its process and its machine."""
        return "" if self.facts is None else f"process {self.facts.pid} on {self.facts.host}"


@dataclass(eq=False)
class StartedWorkers:
    """The workers of an executor, across sweeps and passes.

    Attributes:
        backend: how they are started and reached.
        n: number of workers.
        patience: seconds within which the first worker must have started and loaded the model.
        job_timeout: seconds within which a worker must answer a part; ``None`` for any time.
        states: the workers that have been started, by their numbers.
        model: the model that they load.
        unclaimed: outcomes that a cancelled sweep or pass did not wait for, by their digests.
    """

    backend: Backend
    n: int
    patience: float
    job_timeout: float | None = None
    states: dict[int, WorkerState] = field(default_factory=dict[int, WorkerState])
    model: ModelSpec | None = None
    unclaimed: dict[bytes, tuple[Any, ...]] = field(default_factory=dict[bytes, tuple[Any, ...]])
    _last_number: int = field(default=0, init=False)
    _failed_starts: int = field(default=0, init=False)
    _waiting_since: float = field(default=0.0, init=False)
    _inbox: deque[Event] = field(default_factory=deque[Event], init=False)

    def start(self, n: int) -> None:
        """Start workers until there are ``n``; they load the model when they have started."""
        self._waiting_since, self._failed_starts = time.monotonic(), 0
        places = {state.place for state in self.states.values()}
        for place in range(n):
            if place not in places:
                self._start(place)

    def use(self, model: ModelSpec) -> None:
        """Let all workers load a model."""
        if self.model is not None:
            self.model.close()
        self.model = model
        self.unclaimed.clear()
        for number, state in self.states.items():
            state.opened = None
            if state.facts is not None:
                self._load(number, model)

    def drain(self) -> None:
        """Collect the outcomes of parts that a stopped sweep or pass left with the workers."""
        while any(state.parts for state in self.states.values()):
            event = self.next_event()
            if event is not None and event.kind == "done":
                self.take(event)
            elif event is not None:
                self.replace(event)

    def take(self, event: Event) -> tuple[Part, Reply]:
        """The part that a worker has run, whose outcomes are now unclaimed, and its reply."""
        state = self.states[event.worker]
        part, reply = state.parts.popleft(), loads(event.value)
        state.since = time.monotonic()
        digests = [group.digest for group in part.serialized]
        self.unclaimed.update(zip(digests, reply.outcomes, strict=False))
        return part, reply

    def wait(self, n: int) -> None:
        """Wait until ``n`` workers are ready.

        Raises:
            OutOfResources: they are not in time.
        """
        begin = time.monotonic()
        while sum(state.is_ready for state in self.states.values()) < n:
            self._check_time(begin, n)
            event = self.next_event()
            if event is not None:
                self.replace(event)

    def next_event(self, wait: float = POLL) -> Event | None:
        """Wait for the next part that is done, or worker that has ended; ``None`` after a while.

        What else happens is handled here. Events that arrive together are returned one by one, so
        that none is lost if a sweep stops in between.

        Args:
            wait: the most seconds to wait.

        Raises:
            InvalidInput: a worker has another version of interp, PyTorch or the weights.
            InterpError: a worker can't load the model.
            OutOfResources: no worker has started in time.
        """
        if any(state.is_ready for state in self.states.values()):
            self._waiting_since = time.monotonic()
        else:
            self._check_time(self._waiting_since, 1)
        if not self._inbox:
            self._inbox.extend(self.backend.events(wait))
            self._end_overdue()
        while self._inbox:
            event = self._inbox.popleft()
            if event.worker not in self.states:
                continue
            if event.kind == "hello":
                self._check(event)
            elif event.kind == "loaded":
                self._check_model(event)
            else:
                return self._with_reason(event)
        return None

    def send(self, number: int, part: Part) -> None:
        """Send a part to a worker."""
        state = self.states[number]
        header = None if state.opened is part.opened else part.opened.header
        state.opened = part.opened
        if not state.parts:
            state.since = time.monotonic()
        state.parts.append(part)
        self.backend.run(number, Request(header, [group.data for group in part.serialized]))

    def _end_overdue(self) -> None:
        """End workers that are late; answers that have arrived were read before."""
        if self.job_timeout is None:
            return
        answered, now = {event.worker for event in self._inbox}, time.monotonic()
        for number, state in self.states.items():
            is_late = bool(state.parts) and now - state.since > self.job_timeout
            if is_late and not state.is_overdue and number not in answered:
                state.is_overdue = True
                self.backend.kill(number)

    def _with_reason(self, event: Event) -> Event:
        """An event, with the reason why the driver ended the worker, if it did."""
        if event.kind != "ended" or not self.states[event.worker].is_overdue:
            return event
        return replace(
            event,
            value=f"did not answer within {self.job_timeout:g} s (job_timeout=) and was ended",
        )

    def replace(self, event: Event) -> WorkerState:
        """Start a worker in place of one that has ended, whose state is returned.

        Raises:
            WorkerFailed: workers end before they are ready.
        """
        state = self.states.pop(event.worker)
        if not state.is_ready:
            self._failed_starts += 1
            if self._failed_starts >= TRIES:
                raise WorkerFailed(
                    f"{self._failed_starts} workers ended before they were ready; the last one "
                    f"{event.value}. What it printed says more."
                )
        self._start(state.place)
        return state

    def close(self) -> None:
        """End all workers."""
        self.backend.close()
        self.states.clear()
        if self.model is not None:
            self.model.close()

    def _start(self, place: int) -> None:
        self.states[self._last_number] = WorkerState(place)
        self.backend.start(self._last_number, place)
        self._last_number += 1

    def _check(self, event: Event) -> None:
        facts: Facts = event.value
        differences = facts.differences(Facts.here())
        if differences:
            raise InvalidInput(
                f"Worker {event.worker} (process {facts.pid} on {facts.host}) has "
                f"{'; '.join(differences)}. Install the same versions on all machines."
            )
        self.states[event.worker].facts = facts
        if self.model is not None:
            self._load(event.worker, self.model)

    def _load(self, worker: int, model: ModelSpec) -> None:
        self.states[worker].loads.append(model)
        self.backend.load(worker, model)

    def _check_model(self, event: Event) -> None:
        state = self.states[event.worker]
        expected = state.loads.popleft().weights
        if isinstance(event.value, BaseException):
            raise event.value
        if event.value != expected:
            raise InvalidInput(
                f"Worker {event.worker} ({state.name}) loaded weights with the hash "
                f"{str(event.value)[:12]}; the driver's are {expected[:12]}. Give its machine the "
                "same files, or leave out source=, so that the weights are sent."
            )
        self._failed_starts = 0

    def _check_time(self, since: float, n: int) -> None:
        waited = time.monotonic() - since
        if waited > self.patience:
            what = "No worker was" if n == 1 else f"Not all of {n} workers were"
            raise OutOfResources(f"{what} ready within {waited:.0f} s. {self.backend.why_none()}")


class Dispatch(ABC):
    """Work over workers, in parts.

    Args:
        started: the workers.
        limit: maximum number of workers that run at a time, for memory.
    """

    def __init__(self, started: StartedWorkers, limit: int) -> None:
        self.started, self.limit = started, limit
        self.again: deque[Part] = deque()
        self.reason = ""

    def free(self) -> list[tuple[int, WorkerState]]:
        """The workers that can take a part; those with fewer parts first."""
        states = [pair for pair in self.started.states.items() if pair[1].place < self.limit]
        free = [pair for pair in states if pair[1].is_ready and len(pair[1].parts) < AT_A_TIME]
        return sorted(free, key=lambda pair: len(pair[1].parts))

    def ended(self, event: Event) -> None:
        """Replace a worker; what it ran is run again, group by group, at most three times."""
        state = self.started.replace(event)
        parts = state.parts
        if not parts:
            return
        self.reason = f"worker, {event.worker} ({state.name}), {event.value}"
        for part in parts.popleft().singly():
            if part.failures < TRIES:
                self.again.append(part)
            else:
                self.give_up(part)
        self.again.extend(parts)

    @abstractmethod
    def give_up(self, part: Part) -> None:
        """Take note of a part that has ended three workers."""
