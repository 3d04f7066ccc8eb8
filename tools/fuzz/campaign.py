"""Reads many damaged files in worker processes; a worker that does not answer is killed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from select import select

from tools.fuzz.kinds import KINDS
from tools.fuzz.worker import Outcome

TIMEOUT = 60.0
"""Seconds after which a file that is still being read counts as a hang."""
ALLOWED = 64 * 2**20
"""Bytes of memory that reading a file may take in addition to twice its size."""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


@dataclass(frozen=True)
class Tally:
    """The outcomes of one kind of file.

    Attributes:
        kind: name of the kind.
        outcomes: all outcomes.
    """

    kind: str
    outcomes: Sequence[Outcome]

    def count(self, *ends: str) -> int:
        """The number of outcomes that ended in one of these ways."""
        return sum(outcome.end in ends for outcome in self.outcomes)

    @property
    def too_large(self) -> list[Outcome]:
        """The outcomes that took more memory than twice the file plus 64 MiB."""
        return [outcome for outcome in self.outcomes if outcome.peak > 2 * outcome.size + ALLOWED]

    @property
    def failed(self) -> list[Outcome]:
        """The outcomes that ended in an exception of another family, a hang or a crash."""
        return [outcome for outcome in self.outcomes if outcome.end in ("foreign", "hang", "crash")]


def campaign(
    mutations: int,
    workers: int = 1,
    kinds: Sequence[str] = tuple(KINDS),
    first: int = 0,
    timeout: float = TIMEOUT,
) -> list[Tally]:
    """Read damaged files of all kinds in turn.

    Args:
        mutations: total number of damaged files.
        workers: number of processes.
        kinds: names of the kinds.
        first: the first seed; the same seeds give the same files.
        timeout: seconds after which a worker is killed.
    """
    cases = [(kinds[n % len(kinds)], first + n // len(kinds)) for n in range(mutations)]

    def part(index: int) -> list[Outcome]:
        return list(_outcomes(cases[index::workers], timeout))

    with ThreadPoolExecutor(workers) as pool:
        outcomes = [outcome for part in pool.map(part, range(workers)) for outcome in part]
    return [
        Tally(kind, [outcome for outcome in outcomes if outcome.kind == kind]) for kind in kinds
    ]


def _outcomes(cases: Sequence[tuple[str, int]], timeout: float) -> Iterator[Outcome]:
    """The outcomes of some cases, with a new worker after each hang or crash."""
    worker: _Worker | None = None
    try:
        for kind, seed in cases:
            if worker is None:
                worker = _Worker()
            outcome = worker.ask(kind, seed, timeout)
            if outcome.end in ("hang", "crash"):
                worker.end()
                worker = None
            yield outcome
    finally:
        if worker is not None:
            worker.end()


class _Worker:
    """A process of :mod:`tools.fuzz.worker`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.fuzz.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **ENVIRONMENT},
        )

    def ask(self, kind: str, seed: int, timeout: float) -> Outcome:
        """The outcome of one case."""
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the worker has no pipes")
        try:
            process.stdin.write(f"{kind}\t{seed}\n")
            process.stdin.flush()
        except BrokenPipeError:
            return Outcome(kind, seed, "crash", f"exit code {process.wait()}")
        if not select([process.stdout], [], [], timeout)[0]:
            return Outcome(kind, seed, "hang", seconds=timeout)
        answer = process.stdout.readline()
        if not answer:
            return Outcome(kind, seed, "crash", f"exit code {process.wait()}")
        return Outcome(**json.loads(answer))

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.communicate()


def to_markdown(tallies: Sequence[Tally]) -> str:
    """A table with one row per kind, and one for all kinds."""
    every = Tally("all", [outcome for tally in tallies for outcome in tally.outcomes])
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(_cells(tally))} |" for tally in (*tallies, every)]
    return "\n".join(lines)


COLUMNS = (
    "file",
    "damaged",
    "read",
    "refused",
    "foreign exceptions",
    "hangs, crashes",
    "over the memory",
    "most memory",
    "slowest",
)


def _cells(tally: Tally) -> list[str]:
    most = max((outcome.peak for outcome in tally.outcomes), default=0)
    slowest = max((outcome.seconds for outcome in tally.outcomes), default=0.0)
    counts = [
        len(tally.outcomes),
        tally.count("read"),
        tally.count("refused"),
        tally.count("foreign"),
        tally.count("hang", "crash"),
        len(tally.too_large),
    ]
    return [tally.kind, *map(str, counts), f"{most / 1e6:.0f} MB", f"{slowest:.1f} s"]
