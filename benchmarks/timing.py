"""Timing of several works in turn, round by round.

This way, clock drift, other processes and warm caches affect all works alike. Ratios are taken
within each round.
"""

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

Work = Callable[[], object]
Forward = Callable[[], Tensor]
"""A work that returns logits."""
W = TypeVar("W", bound=Work)


class Absent(Exception):
    """A requirement of a measurement is missing; the message names it."""


@dataclass(frozen=True)
class Timed:
    """Seconds of each work, round by round, and the reasons why others could not be timed.

    Attributes:
        seconds: the seconds of each work, one number per round.
        absent: the reason for each work that can't be done here.
    """

    seconds: Mapping[str, list[float]] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)

    def why_not(self, *works: str) -> str:
        """The reasons why some of ``works`` were not timed; empty if all were."""
        return "; ".join(dict.fromkeys(self.absent[work] for work in works if work in self.absent))

    def median(self, work: str) -> float | None:
        """Median seconds of a work; ``None`` if it was not timed."""
        return None if work in self.absent else statistics.median(self.seconds[work])

    def rounds(self, work: str) -> int:
        """Number of times that a work was timed."""
        return 0 if work in self.absent else len(self.seconds[work])

    def scaled(self, factors: Mapping[str, float]) -> "Timed":
        """A copy in which the seconds of some works are multiplied, for works timed on a part."""
        seconds = {
            work: [factors.get(work, 1.0) * each for each in seconds]
            for work, seconds in self.seconds.items()
        }
        return Timed(seconds, self.absent)

    def ratio(self, work: str, other: str) -> float | None:
        """Median over rounds of the seconds of ``work`` divided by those of ``other``."""
        if work in self.absent or other in self.absent:
            return None
        pairs = zip(self.seconds[work], self.seconds[other], strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)


def once(work: Work, device: torch.device) -> float:
    """Seconds of one call; its result is freed after the clock has stopped."""
    if device.type == "cuda":
        return _once_on_cuda(work)
    begun = time.perf_counter()
    result = work()
    taken = time.perf_counter() - begun
    del result
    return taken


def _once_on_cuda(work: Work) -> float:
    """Like :func:`once`, between two events of the device, synchronized before and after."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    result = work()
    end.record()
    torch.cuda.synchronize()
    del result
    return begin.elapsed_time(end) / 1000


def alternate(
    makers: Mapping[str, Callable[[], Work]], rounds: int, warmup: int, device: torch.device
) -> Timed:
    """Time works in turn, round by round.

    Args:
        makers: each returns a work or raises :class:`Absent`.
        rounds: number of times that each work is timed.
        warmup: number of rounds before those, which are not counted.
        device: the device of the works.
    """
    works, absent = ready(makers)
    seconds: dict[str, list[float]] = {name: [] for name in works}
    gc.collect()
    with torch.no_grad():
        for turn in range(warmup + rounds):
            for name, work in works.items():
                taken = once(work, device)
                if turn >= warmup:
                    seconds[name].append(taken)
    return Timed(seconds, absent)


def ready(makers: Mapping[str, Callable[[], W]]) -> tuple[dict[str, W], dict[str, str]]:
    """The works that can be done here, and the reasons why the others cannot."""
    works: dict[str, W] = {}
    absent: dict[str, str] = {}
    for name, make in makers.items():
        try:
            works[name] = make()
        except Absent as reason:
            absent[name] = str(reason)
    return works, absent
