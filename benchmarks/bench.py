"""The common part of all benchmarks: the setting, the models, and the construction of rows."""

import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from benchmarks.limits import Products
from benchmarks.models import Ours, Setting
from benchmarks.peers import Peers
from benchmarks.table import Mark, Row
from benchmarks.timing import Timed, Work, alternate
from interp.kernels import processor

Makers = dict[str, Callable[[], Work]]
MARKED_THREADS = 2


class Bench:
    """The setting of one call of the command, with our models and those of other libraries."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.ours = Ours(setting)
        self.peers = Peers(setting, self.ours)

    @property
    def on_cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.setting.device.type == "cuda"

    def mark(self, cpu: Mark | None = None, cuda: Mark | None = None) -> Mark | None:
        """The mark for the device of the setting."""
        return cuda if self.on_cuda else cpu

    def timed(self, makers: Makers, rounds: int | None = None, warmup: int | None = None) -> Timed:
        """Time works in turn; see :func:`~benchmarks.timing.alternate`."""
        setting = self.setting
        return alternate(
            makers,
            setting.rounds if rounds is None else rounds,
            setting.warmup if warmup is None else warmup,
            setting.device,
        )

    def products(self, kernel: str, rows: int) -> Makers:
        """The matrix products alone, on ``rows`` rows, from which the limit of a work follows."""
        return {products(kernel): partial(self._products, kernel, rows)}

    def _products(self, kernel: str, rows: int) -> Products:
        return Products(self.ours[kernel], rows)

    def row(self, row: Row, timed: Timed, ours: str, theirs: str | None = None) -> Row:
        """``row`` with the median seconds of two works, their ratio and the number of rounds."""
        compared = (ours,) if theirs is None else (ours, theirs)
        why = timed.why_not(*compared)
        return replace(
            self.judged(row),
            ours=timed.median(ours),
            theirs=None if theirs is None else timed.median(theirs),
            ratio=None if theirs is None else timed.ratio(ours, theirs),
            rounds=0 if why else timed.rounds(ours),
            why=why,
        )

    def judged(self, row: Row) -> Row:
        """``row``, with the reason if its mark does not apply."""
        setting = self.setting
        reasons = {
            "the mark is for GPT-2-small's shape": setting.quick,
            "the mark is for float32": setting.dtype != torch.float32 and not self.on_cuda,
            f"the mark is for {MARKED_THREADS} threads": setting.threads != MARKED_THREADS
            and not self.on_cuda,
            "the mark is for AMD processors": row.kernel == "packed" and "AMD" not in processor(),
        }
        return replace(row, unjudged="; ".join(why for why, holds in reasons.items() if holds))

    def limited(self, row: Row, timed: Timed, ours: str, counted: tuple[float, float]) -> Row:
        """``row`` with its multiply-adds, and its seconds over those at the rate of the products.

        Args:
            row: the row.
            timed: the work and the products of its kernel, timed in turn.
            ours: name of the work.
            counted: number of multiply-adds of the work, and of the products.
        """
        of_work, of_products = counted
        alone = products(row.kernel)
        if timed.why_not(ours, alone):
            return row
        pairs = zip(timed.seconds[ours], timed.seconds[alone], strict=True)
        ratio = statistics.median(taken / least for taken, least in pairs)
        return replace(row, multiply_adds=of_work, of_limit=ratio * of_products / of_work)


def products(kernel: str) -> str:
    """The name under which a kernel's products are timed."""
    return f"products, {kernel}"
