"""Jobs as they are sent: the prompts once, then the cases, group by group.

A group is the cases that run as one forward. Groups are formed from the whole job, as a local sweep
forms them, so that the values are the same bit for bit whichever worker computes a group. How many
groups travel together changes nothing but the time.
"""

import hashlib
from collections import deque
from dataclasses import dataclass, field, replace

from interp.executors.transfer import dumps
from interp.executors.worker_server import Group, Outline, SentCase, labels
from interp.sweeps import Case, Job, Worker, groups_of


@dataclass(frozen=True, eq=False)
class SerializedGroup:
    """One group as it is sent.

    Attributes:
        cases: its cases.
        data: the group, pickled.
        digest: of everything that its outcome depends on, besides the model.
    """

    cases: tuple[Case, ...]
    data: bytes
    digest: bytes


@dataclass(eq=False)
class OpenJob:
    """A job of which some groups have not been sent.

    Attributes:
        job: the job.
        header: the job with outlines of its cases, pickled.
        groups: the groups that have not been sent, in order.
        seconds: estimated time of a group; ``None`` before the first is done.
    """

    job: Job
    header: bytes
    groups: deque[Group]
    seconds: float | None = None
    _digest: bytes = field(default=b"", init=False)

    def __post_init__(self) -> None:
        self._digest = hashlib.blake2b(self.header, digest_size=16).digest()

    @classmethod
    def of(cls, job: Job, work: Worker) -> "OpenJob":
        """Form the groups of a job."""
        groups = deque(groups_of(work.restart_map, job, work.copies(job)))
        return cls(job, dumps(replace(job, cases=outlines(job, work), done=frozenset())), groups)

    def take(self, count: int) -> list[SerializedGroup]:
        """The next groups, at most ``count``, as they are sent."""
        return [
            self._serialized(self.groups.popleft()) for _ in range(min(count, len(self.groups)))
        ]

    def _serialized(self, group: Group) -> SerializedGroup:
        cases, first_column = group
        sent = tuple(
            SentCase(c.index, c.for_rows(self.job.rows, self.job.n), c.restarts, c.split)
            for c in cases
        )
        data = dumps((sent, first_column))
        digest = hashlib.blake2b(self._digest + data, digest_size=16).digest()
        return SerializedGroup(cases, data, digest)


def outlines(job: Job, work: Worker) -> tuple[Outline, ...]:
    """What the baseline of a job depends on in its cases, each only once."""
    distinct: dict[object, Outline] = {}
    for case in job.cases:
        column = case.first_column(work.restart_map, job.batches)
        reads = frozenset(case.earlier)
        key = (case.restarts, column > 0, reads)
        if key not in distinct:
            distinct[key] = Outline(case.index, (), case.restarts, case.split, column, reads)
    return tuple(distinct.values())


@dataclass(eq=False)
class Part:
    """Groups of one job that a worker runs in one go.

    Attributes:
        opened: their job.
        serialized: the groups.
        failures: how often a worker ended while it ran them.
    """

    opened: OpenJob
    serialized: list[SerializedGroup]
    failures: int = 0

    def singly(self) -> list["Part"]:
        """Parts of one group each, after the worker that ran this part ended."""
        return [Part(self.opened, [group], self.failures + 1) for group in self.serialized]

    def __str__(self) -> str:
        """Cases and prompts."""
        first, *others = self.opened.job.rows
        more = f" and {len(others)} more" if others else ""
        return f"{labels(self.serialized[0].cases)} on prompt {first}{more}"
