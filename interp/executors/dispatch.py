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
from interp.executors.crew import Crew, Event, ModelSpec, Request
from interp.executors.jobs import OpenJob, Part
from interp.executors.station import Facts, Reply
from interp.executors.transfer import loads
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
class Seat:
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
class Staff:
    """The workers of an executor, across sweeps.

    Attributes:
        crew: how they are started and reached.
        n: number of workers.
        patience: seconds within which the first worker must have started and loaded the model.
        seats: the workers that have been started, by their numbers.
        model: the model that they load.
        unclaimed: outcomes of parts that a cancelled sweep did not wait for, by their digests.
    """

    crew: Crew
    n: int
    patience: float
    seats: dict[int, Seat] = field(default_factory=dict[int, Seat])
    model: ModelSpec | None = None
    unclaimed: dict[bytes, tuple[Outcome, ...]] = field(
        default_factory=dict[bytes, tuple[Outcome, ...]]
    )
    _hired: int = field(default=0, init=False)
    _failed_starts: int = field(default=0, init=False)
    _waiting_since: float = field(default=0.0, init=False)
    _inbox: deque[Event] = field(default_factory=deque[Event], init=False)

    def hire(self, n: int) -> None:
        """Start workers until there are ``n``; they load the model when they have started."""
        self._waiting_since, self._failed_starts = time.monotonic(), 0
        places = {seat.place for seat in self.seats.values()}
        for place in range(n):
            if place not in places:
                self._start(place)

    def use(self, model: ModelSpec) -> None:
        """Let all workers load a model."""
        if self.model is not None:
            self.model.close()
        self.model = model
        self.unclaimed.clear()
        for number, seat in self.seats.items():
            seat.job = None
            if seat.facts is not None:
                self._load(number, model)

    def settle(self) -> None:
        """Collect the outcomes of parts that a stopped sweep left with the workers."""
        while any(seat.parts for seat in self.seats.values()):
            event = self.next_event()
            if event is not None and event.kind == "done":
                self.take(event)
            elif event is not None:
                self.replace(event)

    def take(self, event: Event) -> tuple[Part, Reply]:
        """The part that a worker has run, whose outcomes are now unclaimed, and its reply."""
        part, reply = self.seats[event.worker].parts.popleft(), loads(event.value)
        digests = [parcel.digest for parcel in part.parcels]
        self.unclaimed.update(zip(digests, reply.outcomes, strict=False))
        return part, reply

    def wait(self, n: int) -> None:
        """Wait until ``n`` workers are ready.

        Raises:
            OutOfResources: they are not in time.
        """
        begin = time.monotonic()
        while sum(seat.is_ready for seat in self.seats.values()) < n:
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
        if any(seat.is_ready for seat in self.seats.values()):
            self._waiting_since = time.monotonic()
        else:
            self._check_time(self._waiting_since, 1)
        if not self._inbox:
            self._inbox.extend(self.crew.events(POLL))
        while self._inbox:
            event = self._inbox.popleft()
            if event.worker not in self.seats:
                continue
            if event.kind == "hello":
                self._check(event)
            elif event.kind == "loaded":
                self._check_model(event)
            else:
                return event
        return None

    def replace(self, event: Event) -> Seat:
        """Start a worker in place of one that has ended, whose seat is returned.

        Raises:
            WorkerFailed: workers end before they are ready.
        """
        seat = self.seats.pop(event.worker)
        if not seat.is_ready:
            self._failed_starts += 1
            if self._failed_starts >= TRIES:
                raise WorkerFailed(
                    f"{self._failed_starts} workers ended before they were ready; the last one "
                    f"{event.value}. What it printed says more."
                )
        self._start(seat.place)
        return seat

    def close(self) -> None:
        """End all workers."""
        self.crew.close()
        self.seats.clear()
        if self.model is not None:
            self.model.close()

    def _start(self, place: int) -> None:
        self.seats[self._hired] = Seat(place)
        self.crew.start(self._hired, place)
        self._hired += 1

    def _check(self, event: Event) -> None:
        facts: Facts = event.value
        differences = facts.differences(Facts.here())
        if differences:
            raise InvalidInput(
                f"Worker {event.worker} (process {facts.pid} on {facts.host}) has "
                f"{'; '.join(differences)}. Install the same versions on all machines."
            )
        self.seats[event.worker].facts = facts
        if self.model is not None:
            self._load(event.worker, self.model)

    def _load(self, worker: int, model: ModelSpec) -> None:
        self.seats[worker].loads.append(model)
        self.crew.load(worker, model)

    def _check_model(self, event: Event) -> None:
        seat = self.seats[event.worker]
        expected = seat.loads.popleft().weights
        if isinstance(event.value, BaseException):
            raise event.value
        if event.value != expected:
            raise InvalidInput(
                f"Worker {event.worker} ({seat.name}) loaded weights with the hash "
                f"{str(event.value)[:12]}; the driver's are {expected[:12]}. Give its machine the "
                "same files, or leave out source=, so that the weights are sent."
            )
        self._failed_starts = 0

    def _check_time(self, since: float, n: int) -> None:
        waited = time.monotonic() - since
        if waited > self.patience:
            what = "No worker was" if n == 1 else f"Not all of {n} workers were"
            raise OutOfResources(f"{what} ready within {waited:.0f} s. {self.crew.why_none()}")


class Dispatch:
    """One sweep over workers.

    Args:
        staff: the workers.
        jobs: the jobs.
        work: what runs them locally: the model and the budget.
        limit: maximum number of workers that run at a time, for memory.
    """

    def __init__(self, staff: Staff, jobs: Sequence[Job], work: Worker, limit: int) -> None:
        self.staff, self.work, self.limit = staff, work, limit
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
            for seat in self._free():
                yield from self._fill(*seat)
            if not self._is_waiting:
                break
            event = self.staff.next_event()
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
        parts = any(seat.parts for seat in self.staff.seats.values())
        return bool(parts or self.again or self.unopened or self._has_groups())

    def _has_groups(self) -> bool:
        self.opened = [opened for opened in self.opened if opened.groups]
        return bool(self.opened)

    def _free(self) -> list[tuple[int, Seat]]:
        """The workers that can take a part; those with fewer parts first."""
        seats = [pair for pair in self.staff.seats.items() if pair[1].place < self.limit]
        free = [pair for pair in seats if pair[1].is_ready and len(pair[1].parts) < AT_A_TIME]
        return sorted(free, key=lambda pair: len(pair[1].parts))

    def _fill(self, number: int, seat: Seat) -> Iterator[Outcome]:
        """Send a worker its next part; yield what an earlier sweep has already computed."""
        while (part := self._next(seat)) is not None:
            yield from self._claimed(part)
            if part.parcels:
                self._send(number, seat, part)
                return

    def _claimed(self, part: Part) -> Iterator[Outcome]:
        """Yield the outcomes that are there, and leave the other groups to the part."""
        ready = [parcel for parcel in part.parcels if parcel.digest in self.staff.unclaimed]
        part.parcels = [parcel for parcel in part.parcels if parcel not in ready]
        for parcel in ready:
            yield from self.staff.unclaimed.pop(parcel.digest)

    def _send(self, number: int, seat: Seat, part: Part) -> None:
        header = None if seat.job is part.opened else part.opened.header
        groups = [parcel.data for parcel in part.parcels]
        seat.job = part.opened
        seat.parts.append(part)
        self.staff.crew.run(number, Request(header, self.work.budget, groups))

    def _next(self, seat: Seat) -> Part | None:
        if self.again:
            return self.again.popleft()
        opened = self._job_for(seat)
        return None if opened is None else Part(opened, opened.take(self._size(opened)))

    def _job_for(self, seat: Seat) -> OpenJob | None:
        """The worker's own job, a new one, or the one with most groups left."""
        if seat.job is not None and seat.job in self.opened and seat.job.groups:
            return seat.job
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
        equal = left if self.unopened else ceil(left / (AT_A_TIME * min(self.limit, self.staff.n)))
        return max(1, min(round(SECONDS / max(known[0], 1e-6)), equal))

    def _done(self, event: Event) -> Iterator[Outcome]:
        part, reply = self.staff.take(event)
        if reply.error is not None:
            raise reply.error
        part.opened.seconds = reply.seconds / len(part.parcels)
        yield from self._claimed(part)

    def _ended(self, event: Event) -> None:
        """Replace a worker; what it ran is run again, group by group, at most three times."""
        parts = self.staff.replace(event).parts
        if not parts:
            return
        self.reason = event.value
        for part in parts.popleft().singly():
            (self.again if part.failures < TRIES else self.given_up).append(part)
        self.again.extend(parts)
