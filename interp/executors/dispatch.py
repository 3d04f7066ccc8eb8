"""Distributes the groups of a sweep over workers, and replaces those that end.

A worker gets parts of a quarter of a second, two at a time, so that it never waits for the driver
and the driver never holds more than that. It stays with its job, whose baseline it has computed, as
long as the job has groups left; then it opens the next one, or joins the one that has most left.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil

from interp.errors import InvalidInput, OutOfResources, WorkerFailed
from interp.executors.backend import Backend, Event, ModelSpec, Request
from interp.executors.jobs import OpenJob, Part
from interp.executors.transfer import loads
from interp.executors.worker_server import Facts, Reply
from interp.sweeps import Job, Outcome, Worker

SECONDS = 0.25
"""Duration of a part that is aimed at."""
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
        job: the job of the last of them.
    """

    place: int
    facts: Facts | None = None
    loads: deque[ModelSpec] = field(default_factory=deque[ModelSpec])
    parts: deque[Part] = field(default_factory=deque[Part])
    job: OpenJob | None = None

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
    """The workers of an executor, across sweeps.

    Attributes:
        backend: how they are started and reached.
        n: number of workers.
        patience: seconds within which the first worker must have started and loaded the model.
        states: the workers that have been started, by their numbers.
        model: the model that they load.
        unclaimed: outcomes of parts that a cancelled sweep did not wait for, by their digests.
    """

    backend: Backend
    n: int
    patience: float
    states: dict[int, WorkerState] = field(default_factory=dict[int, WorkerState])
    model: ModelSpec | None = None
    unclaimed: dict[bytes, tuple[Outcome, ...]] = field(
        default_factory=dict[bytes, tuple[Outcome, ...]]
    )
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
            state.job = None
            if state.facts is not None:
                self._load(number, model)

    def drain(self) -> None:
        """Collect the outcomes of parts that a stopped sweep left with the workers."""
        while any(state.parts for state in self.states.values()):
            event = self.next_event()
            if event is not None and event.kind == "done":
                self.take(event)
            elif event is not None:
                self.replace(event)

    def take(self, event: Event) -> tuple[Part, Reply]:
        """The part that a worker has run, whose outcomes are now unclaimed, and its reply."""
        part, reply = self.states[event.worker].parts.popleft(), loads(event.value)
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

    def next_event(self) -> Event | None:
        """Wait for the next part that is done, or worker that has ended; ``None`` after a while.

        What else happens is handled here. Events that arrive together are returned one by one, so
        that none is lost if a sweep stops in between.

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
            self._inbox.extend(self.backend.events(POLL))
        while self._inbox:
            event = self._inbox.popleft()
            if event.worker not in self.states:
                continue
            if event.kind == "hello":
                self._check(event)
            elif event.kind == "loaded":
                self._check_model(event)
            else:
                return event
        return None

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


class Dispatch:
    """One sweep over workers.

    Args:
        started: the workers.
        jobs: the jobs.
        work: what runs them locally: the model and the budget.
        limit: maximum number of workers that run at a time, for memory.
    """

    def __init__(
        self, started: StartedWorkers, jobs: Sequence[Job], work: Worker, limit: int
    ) -> None:
        self.started, self.work, self.limit = started, work, limit
        self.unopened = deque(jobs)
        self.opened: list[OpenJob] = []
        self.again: deque[Part] = deque()
        self.given_up: list[Part] = []
        self.reason = ""

    def outcomes(self) -> Iterator[Outcome]:
        """Yield the outcomes as they arrive.

        Raises:
            WorkerFailed: a part has ended three workers; raised when the others are done.
            InterpError: what a worker raised.
        """
        while True:
            for state in self._free():
                yield from self._fill(*state)
            if not self._is_waiting:
                break
            event = self.started.next_event()
            if event is not None and event.kind == "done":
                yield from self._done(event)
            elif event is not None:
                self._ended(event)
        if self.given_up:
            raise WorkerFailed(
                f"A job ended {TRIES} workers and was given up, the others are done: "
                f"{self.given_up[0]}"
                + (f"; and {len(self.given_up) - 1} more jobs" if len(self.given_up) > 1 else "")
                + f". The last worker {self.reason}."
            )

    @property
    def _is_waiting(self) -> bool:
        parts = any(state.parts for state in self.started.states.values())
        return bool(parts or self.again or self.unopened or self._has_groups())

    def _has_groups(self) -> bool:
        self.opened = [opened for opened in self.opened if opened.groups]
        return bool(self.opened)

    def _free(self) -> list[tuple[int, WorkerState]]:
        """The workers that can take a part; those with fewer parts first."""
        states = [pair for pair in self.started.states.items() if pair[1].place < self.limit]
        free = [pair for pair in states if pair[1].is_ready and len(pair[1].parts) < AT_A_TIME]
        return sorted(free, key=lambda pair: len(pair[1].parts))

    def _fill(self, number: int, state: WorkerState) -> Iterator[Outcome]:
        """Send a worker its next part; yield what an earlier sweep has already computed."""
        while (part := self._next(state)) is not None:
            yield from self._claimed(part)
            if part.serialized:
                self._send(number, state, part)
                return

    def _claimed(self, part: Part) -> Iterator[Outcome]:
        """Yield the outcomes that are there, and leave the other groups to the part."""
        ready = [group for group in part.serialized if group.digest in self.started.unclaimed]
        part.serialized = [group for group in part.serialized if group not in ready]
        for group in ready:
            yield from self.started.unclaimed.pop(group.digest)

    def _send(self, number: int, state: WorkerState, part: Part) -> None:
        header = None if state.job is part.opened else part.opened.header
        groups = [group.data for group in part.serialized]
        state.job = part.opened
        state.parts.append(part)
        self.started.backend.run(number, Request(header, self.work.budget, groups))

    def _next(self, state: WorkerState) -> Part | None:
        if self.again:
            return self.again.popleft()
        opened = self._job_for(state)
        return None if opened is None else Part(opened, opened.take(self._size(opened)))

    def _job_for(self, state: WorkerState) -> OpenJob | None:
        """The worker's own job, a new one, or the one with most groups left."""
        if state.job is not None and state.job in self.opened and state.job.groups:
            return state.job
        while self.unopened:
            opened = OpenJob.of(self.unopened.popleft(), self.work)
            if opened.groups:
                self.opened.append(opened)
                return opened
        if not self._has_groups():
            return None
        return max(self.opened, key=lambda opened: len(opened.groups))

    def _size(self, opened: OpenJob) -> int:
        """Number of groups of the next part."""
        known = [job.seconds for job in (opened, *self.opened) if job.seconds is not None]
        if not known:
            return 1
        left = sum(len(job.groups) for job in self.opened)
        equal = (
            left if self.unopened else ceil(left / (AT_A_TIME * min(self.limit, self.started.n)))
        )
        return max(1, min(round(SECONDS / max(known[0], 1e-6)), equal))

    def _done(self, event: Event) -> Iterator[Outcome]:
        part, reply = self.started.take(event)
        if reply.error is not None:
            raise reply.error
        part.opened.seconds = reply.seconds / len(part.serialized)
        yield from self._claimed(part)

    def _ended(self, event: Event) -> None:
        """Replace a worker; what it ran is run again, group by group, at most three times."""
        parts = self.started.replace(event).parts
        if not parts:
            return
        self.reason = event.value
        for part in parts.popleft().singly():
            (self.again if part.failures < TRIES else self.given_up).append(part)
        self.again.extend(parts)
