"""Jobs as they are sent: the prompts once, then the cases, group by group.

A group is the cases that run as one forward. Groups are formed from the whole job, as a local sweep
forms them, so that the values are the same bit for bit whichever worker computes a group. How many
groups travel together changes nothing but the time.
"""

import hashlib
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from interp.executors.transfer import dumps
from interp.executors.worker_server import Group, Outline, SentCase, SentJob, labels
from interp.sweeps import Job, Worker, groups_of


@dataclass(frozen=True, eq=False)
class SerializedGroup:
    """One group of a job, or one batch of a pass, as it is sent.

    Attributes:
        source: the cases of the group; of a pass, see :class:`interp.executors.passes.Item`.
        data: the group or the batch, pickled.
        digest: of everything that its outcome depends on, besides the model.
    """

    source: Any
    data: bytes
    digest: bytes

    @classmethod
    def of(cls, source: object, content: object, opened: bytes) -> "SerializedGroup":
        """A group of what ``opened`` is the digest of."""
        data = dumps(content)
        return cls(source, data, digest_of(opened + data))


def digest_of(data: bytes) -> bytes:
    """A hash of some bytes."""
    return hashlib.blake2b(data, digest_size=16).digest()


@runtime_checkable
class Opened(Protocol):
    """What parts belong to: a job of a sweep, or a pass."""

    @property
    def header(self) -> bytes:
        """What a worker needs before the first part, pickled."""
        ...

    def name_of(self, group: SerializedGroup) -> str:
        """A group or batch in messages."""
        ...


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
        self._digest = digest_of(self.header)

    @classmethod
    def of(cls, job: Job, work: Worker) -> "OpenJob":
        """Form the groups of a job."""
        groups = deque(groups_of(work.restart_map, job, work.copies(job)))
        sent = replace(job, cases=outlines(job, work), done=frozenset())
        return cls(job, dumps(SentJob(sent, work.budget)), groups)

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
        return SerializedGroup.of(cases, (sent, first_column), self._digest)

    def name_of(self, group: SerializedGroup) -> str:
        """Cases and prompts."""
        first, *others = self.job.rows
        more = f" and {len(others)} more" if others else ""
        return f"{labels(group.source)} on prompt {first}{more}"


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
    """Groups of one job, or a batch of a pass, that a worker runs in one go.

    Attributes:
        opened: their job or pass.
        serialized: the groups.
        failures: how often a worker ended while it ran them.
    """

    opened: Opened
    serialized: list[SerializedGroup]
    failures: int = 0

    def singly(self) -> list["Part"]:
        """Parts of one group each, after the worker that ran this part ended."""
        return [Part(self.opened, [group], self.failures + 1) for group in self.serialized]

    def __str__(self) -> str:
        """The first of its groups, in messages."""
        return self.opened.name_of(self.serialized[0])
