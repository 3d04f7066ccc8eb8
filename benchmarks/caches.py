"""Bytes of a cache, peak memory of a forward, and the time to read derived patterns."""

from collections.abc import Iterable, Iterator
from functools import partial
from statistics import median

import torch
from torch import Tensor

import interp
from benchmarks.bench import Bench
from benchmarks.forwards import huggingface, lens_stored, plain, recorded, stored
from benchmarks.memory import peak
from benchmarks.models import KERNELS
from benchmarks.table import Mark, Row
from benchmarks.timing import Absent, Timed, Work, ready

MB = 1e6
SHORT, LONG = Mark(3.5, times_less=True), Mark(8, times_less=True)
READING = Mark(1.0)


def bytes_held(tensors: Iterable[Tensor]) -> int:
    """Bytes of the storages of ``tensors``, each storage counted once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def size(bench: Bench) -> Iterator[Row]:
    """Bytes of a cache of every activation; the logits are excluded on both sides."""
    passes = bench.setting.passes
    for (rows, width), mark in ((passes[-1], LONG), (passes[0], SHORT)):
        tokens = bench.setting.tokens(rows, width)
        ours, theirs, why = _ours_held(bench, tokens) / MB, None, ""
        try:
            theirs = _lens_held(bench, tokens) / MB
        except Absent as reason:
            why = str(reason)
        row = Row(
            section="cache",
            work=f"bytes kept, all recorded {rows}×{width}",
            kernel="default",
            against="TransformerLens run_with_cache",
            ours=ours,
            theirs=theirs,
            ratio=None if theirs is None else ours / theirs,
            unit="MB",
            mark=bench.mark(cpu=mark, cuda=mark),
            why=why,
        )
        yield bench.judged(row)


@torch.no_grad()
def _ours_held(bench: Bench, tokens: Tensor) -> int:
    run = interp.run(bench.ours.default, tokens, record="all")
    if run.logits is None:
        raise Absent("the run returned no logits")
    return run.cache.nbytes - bytes_held([run.logits])


@torch.no_grad()
def _lens_held(bench: Bench, tokens: Tensor) -> int:
    logits, cache = bench.peers.lens.run_with_cache(tokens)
    return bytes_held(cache.values()) - bytes_held([logits])


def memory(bench: Bench) -> Iterator[Row]:
    """Peak memory of a forward beyond what was allocated before it."""
    rows, width = bench.setting.passes[-1]
    tokens = bench.setting.tokens(rows, width)
    works, absent = ready(
        {
            **{f"plain, {k}": partial(plain, bench, k, tokens) for k in KERNELS},
            **{f"recorded, {k}": partial(recorded, bench, k, tokens) for k in KERNELS},
            "stored, default": partial(stored, bench, "default", tokens),
            "transformers": partial(huggingface, bench, "sdpa", tokens),
            "lens": partial(lens_stored, bench, tokens),
        }
    )
    most: dict[str, float] = {}
    for name, work in works.items():
        try:
            most[name] = peak(work, bench.setting.device) / MB
        except Absent as reason:
            absent[name] = str(reason)
    for work, kernel, other, against in (
        ("plain forward", "default", "transformers", "transformers sdpa, plain"),
        ("plain forward", "packed", "transformers", "transformers sdpa, plain"),
        ("all recorded", "default", "transformers", "transformers sdpa, plain"),
        ("all recorded", "packed", "transformers", "transformers sdpa, plain"),
        ("all recorded", "default", "lens", "TransformerLens run_with_cache"),
        ("all formed and stored", "default", "lens", "TransformerLens run_with_cache"),
    ):
        ours = f"{work.split()[-1].replace('forward', 'plain')}, {kernel}"
        both = ours in most and other in most
        yield Row(
            section="memory",
            work=f"peak memory, {work} {rows}×{width}",
            kernel=kernel,
            against=against,
            ours=most.get(ours),
            theirs=most.get(other),
            ratio=most[ours] / most[other] if both and most[other] else None,
            unit="MB",
            why="; ".join(absent[name] for name in (ours, other) if name in absent),
        )


# ---- derived patterns --------------------------------------------------------------------------


def patterns(bench: Bench) -> Iterator[Row]:
    """Time to derive every head's pattern from a cache, against the time to store it in the run.

    The time to store is the difference of two runs: one that forms and stores the patterns, and one
    that records everything with the fused kernel.
    """
    rows, width = bench.setting.passes[-1]
    tokens = bench.setting.tokens(rows, width)
    for kernel in KERNELS:
        timed = bench.timed(
            {
                "in turn": partial(_read_by_layer, bench, kernel, tokens),
                "together": partial(_read_all, bench, kernel, tokens),
                "stored": partial(_store_patterns, bench, kernel, tokens),
                "recorded": partial(recorded, bench, kernel, tokens),
            }
        )
        timed = _with_difference(timed)
        heads = bench.setting.shape.n_layers * bench.setting.shape.n_heads
        for how in ("in turn", "together"):
            row = Row(
                section="patterns",
                work=f"reading {heads} patterns {rows}×{width}, {how}",
                kernel=kernel,
                against="forming them in the forward: stored − recorded",
                mark=bench.mark(cpu=READING),
                note=_seconds(timed),
            )
            yield bench.row(row, timed, how, "difference")


def _read_by_layer(bench: Bench, kernel: str, tokens: Tensor) -> Work:
    """Derive the patterns layer by layer, freeing each before the next."""
    with torch.no_grad():
        cache = interp.run(bench.ours[kernel], tokens, record="all").cache
    layers = range(bench.setting.shape.n_layers)

    def read() -> None:
        for layer in layers:
            cache["pattern", layer]

    return read


def _read_all(bench: Bench, kernel: str, tokens: Tensor) -> Work:
    """Derive all patterns and keep them in memory together."""
    with torch.no_grad():
        cache = interp.run(bench.ours[kernel], tokens, record="all").cache
    layers = range(bench.setting.shape.n_layers)
    return lambda: [cache["pattern", layer] for layer in layers]


def _store_patterns(bench: Bench, kernel: str, tokens: Tensor) -> Work:
    model = bench.ours[kernel]
    return lambda: interp.run(model, tokens, record="all", store="pattern").cache


def _with_difference(timed: Timed) -> Timed:
    """``timed`` with an additional work, ``difference``: the seconds of stored − recorded."""
    if timed.why_not("stored", "recorded"):
        return Timed(timed.seconds, {**timed.absent, "difference": timed.why_not("stored")})
    pairs = zip(timed.seconds["stored"], timed.seconds["recorded"], strict=True)
    least = 1e-9  # noise can make the difference negative, and the ratio with it
    differences = [max(stored - recorded, least) for stored, recorded in pairs]
    return Timed({**timed.seconds, "difference": differences}, timed.absent)


def _seconds(timed: Timed) -> str:
    if timed.why_not("stored", "recorded"):
        return ""
    stored_in, recorded_in = (median(timed.seconds[name]) for name in ("stored", "recorded"))
    return f"{stored_in:.3g} s − {recorded_in:.3g} s"
