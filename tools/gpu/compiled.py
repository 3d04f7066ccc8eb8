"""Whether ``torch.compile`` makes the plain forward faster, with and without a CUDA graph."""

import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.bench import Bench
from benchmarks.forwards import plain
from benchmarks.precision import Precision
from benchmarks.table import Row
from benchmarks.timing import Absent, Forward, Work
from tools.gpu.measurement import Measurement, relative_difference

MODES = {"default": "kernels", "reduce-overhead": "kernels replayed as a CUDA graph"}
TRIAL_BACKEND = "eager"
"""Traces the model without compiling it: for trials of the command on a tiny model."""


def compiled(bench: Bench, precision: Precision) -> Iterator[Measurement]:
    """The compiled plain forward against the plain one, for the shortest pass."""
    tokens = bench.setting.tokens(*bench.setting.passes[0])
    shape = "×".join(map(str, tokens.shape))
    seconds: dict[str, float] = {}
    works: dict[str, Forward] = {}
    torch.compiler.reset()

    def make(mode: str) -> Forward:
        works[mode], seconds[mode] = _compile(bench, tokens, mode)
        return works[mode]

    makers: dict[str, Callable[[], Work]] = {mode: partial(make, mode) for mode in MODES}
    timed = bench.timed({"plain": partial(plain, bench, "default", tokens), **makers})
    for mode, kind in MODES.items():
        row = Row(
            section="compiled",
            work=f"plain forward {shape}, torch.compile ({mode})",
            kernel="default",
            against="our plain forward",
            note=f"{kind}; compiled in {seconds[mode]:.0f} s" if mode in seconds else kind,
        )
        difference = None
        if mode in works:
            expected = _logits(plain(bench, "default", tokens))
            difference = relative_difference(_logits(works[mode]), expected)
        yield Measurement(
            precision=precision.name,
            row=bench.row(row, timed, mode, "plain"),
            difference=difference,
            tolerance=precision.tolerance,
        )


@torch.no_grad()
def _logits(work: Forward) -> Tensor:
    """A copy of the logits, since the next replay of a CUDA graph overwrites its buffers."""
    return work().clone()


@torch.no_grad()
def _compile(bench: Bench, tokens: Tensor, mode: str) -> tuple[Forward, float]:
    """The compiled forward, and the seconds of its first call.

    Raises:
        Absent: it cannot be compiled here.
    """
    settings: dict[str, Any] = {"backend": TRIAL_BACKEND} if bench.setting.quick else {"mode": mode}
    begun = time.perf_counter()
    try:
        work = partial(torch.compile(bench.ours.default, **settings), tokens)
        work()
    except Exception as error:  # a compiler may raise anything, and this is only one row
        raise Absent(traceback.format_exception_only(error)[0].splitlines()[0]) from error
    return work, time.perf_counter() - begun
