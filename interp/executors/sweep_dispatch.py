"""Distributes the groups of a sweep over workers.

A worker gets parts of a quarter of a second. It stays with its job, whose baseline it has computed,
as long as the job has groups left; then it opens the next one, or joins the one that has most left.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from math import ceil

from interp.errors import WorkerFailed
from interp.executors.backend import Event
from interp.executors.dispatch import AT_A_TIME, TRIES, Dispatch, StartedWorkers, WorkerState
from interp.executors.jobs import OpenJob, Part
from interp.sweeps import Job, Outcome, Worker

SECONDS = 0.25
"""Duration of a part that is aimed at."""


class SweepDispatch(Dispatch):
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
        super().__init__(started, limit)
        self.work, self.unopened = work, deque(jobs)
        self.opened: list[OpenJob] = []
        self.given_up: list[Part] = []

    def outcomes(self) -> Iterator[Outcome]:
        """Yield the outcomes as they arrive.

        Raises:
            WorkerFailed: a part has ended three workers; raised when the others are done.
            InterpError: what a worker raised.
        """
        while True:
            for state in self.free():
                yield from self._fill(*state)
            if not self._is_waiting:
                break
            event = self.started.next_event()
            if event is not None and event.kind == "done":
                yield from self._done(event)
            elif event is not None:
                self.ended(event)
        if self.given_up:
            raise WorkerFailed(
                f"A job ended {TRIES} workers and was given up, the others are done: "
                f"{self.given_up[0]}"
                + (f"; and {len(self.given_up) - 1} more jobs" if len(self.given_up) > 1 else "")
                + f". The last {self.reason}."
            )

    @property
    def _is_waiting(self) -> bool:
        parts = any(state.parts for state in self.started.states.values())
        return bool(parts or self.again or self.unopened or self._has_groups())

    def _has_groups(self) -> bool:
        self.opened = [opened for opened in self.opened if opened.groups]
        return bool(self.opened)

    def _fill(self, number: int, state: WorkerState) -> Iterator[Outcome]:
        """Send a worker its next part; yield what an earlier sweep has already computed."""
        while (part := self._next(state)) is not None:
            yield from self._claimed(part)
            if part.serialized:
                self.started.send(number, part)
                return

    def _claimed(self, part: Part) -> Iterator[Outcome]:
        """Yield the outcomes that are there, and leave the other groups to the part."""
        ready = [group for group in part.serialized if group.digest in self.started.unclaimed]
        part.serialized = [group for group in part.serialized if group not in ready]
        for group in ready:
            yield from self.started.unclaimed.pop(group.digest)

    def _next(self, state: WorkerState) -> Part | None:
        if self.again:
            return self.again.popleft()
        opened = self._job_for(state)
        return None if opened is None else Part(opened, opened.take(self._size(opened)))

    def _job_for(self, state: WorkerState) -> OpenJob | None:
        """The worker's own job, a new one, or the one with most groups left."""
        for opened in self.opened:
            if opened is state.opened and opened.groups:
                return opened
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
        for opened in self.opened:
            if opened is part.opened:
                opened.seconds = reply.seconds / len(part.serialized)
        yield from self._claimed(part)

    def give_up(self, part: Part) -> None:
        """Name it when the others are done."""
        self.given_up.append(part)
