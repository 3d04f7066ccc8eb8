"""The parts that are measured on a GPU: values, sweeps, forwards, caches, memory.

Each function measures one part at one precision. The models have GPT-2-small's shape and the same
random weights in both libraries.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product

import torch
from torch import Tensor

import interp
from benchmarks import forwards, patching, sweeps
from benchmarks.bench import Bench
from benchmarks.caches import LONG, MB, SHORT, bytes_held
from benchmarks.memory import peak
from benchmarks.models import Ours
from benchmarks.precision import FLOAT32, Precision, matmul_precision
from benchmarks.sweeps import LENS_ON_CUDA, Heads, metric
from benchmarks.table import Mark, Row
from benchmarks.timing import Absent, Work
from interp import edits
from tools.gpu.measurement import Measurement, relative_difference

KERNEL = "default"
"""The only kernel for matrix products on a GPU."""
WITHIN_BUDGET = Mark(1.0)
BUDGET, QUICK_BUDGET = 2**30, 2**20
"""Memory limit in bytes of the sweep whose peak memory is measured."""


def judged_on_cuda(bench: Bench, row: Row) -> Row:
    """``row`` with a mark that is judged only on CUDA and at full size."""
    judged = bench.judged(row)
    if bench.on_cuda:
        return judged
    return replace(judged, unjudged="; ".join(filter(None, ("not on CUDA", judged.unjudged))))


def agreement(bench: Bench, precision: Precision) -> Iterator[Measurement]:
    """Our logits and those of transformers; in lower precisions, both against float32."""
    tokens = bench.setting.tokens(*bench.setting.passes[1])
    with torch.no_grad():
        ours = bench.ours.default(tokens)
        peer_logits = {
            name: forwards.huggingface(bench, name, tokens)() for name in ("sdpa", "eager")
        }
    work = f"logits {_shape(tokens)}"
    for name, theirs in peer_logits.items():
        difference = relative_difference(ours, theirs)
        row = Row(section="agreement", work=work, kernel=KERNEL, against=f"transformers {name}")
        yield Measurement(
            precision=precision.name,
            row=replace(row, ours=difference, unit=""),
            difference=difference,
            tolerance=precision.tolerance,
        )
    if precision == FLOAT32:
        return
    exact = _float32_logits(bench, tokens)
    for name, theirs in peer_logits.items():
        our_error = relative_difference(ours, exact)
        their_error = relative_difference(theirs, exact)
        row = Row(
            section="agreement",
            work=f"{work}, distance from float32",
            kernel=KERNEL,
            against=f"transformers {name}",
            ours=our_error,
            theirs=their_error,
            unit="",
            ratio=our_error / their_error if their_error else None,
        )
        yield Measurement(precision=precision.name, row=row)


@torch.no_grad()
def _float32_logits(bench: Bench, tokens: Tensor) -> Tensor:
    """The logits of the same weights in float32."""
    with matmul_precision(FLOAT32.matmul):
        return Ours(replace(bench.setting, dtype=FLOAT32.dtype)).default(tokens)


def heads(bench: Bench, precision: Precision) -> Iterator[Measurement]:
    """Every head zeroed: a sweep against a loop of forwards with a hook on transformers.

    The mark is for ``eager`` attention, which forms attention matrices as TransformerLens does.
    """
    setting = bench.setting
    tokens = setting.tokens(*setting.prompts)
    every = list(product(range(setting.shape.n_layers), range(setting.shape.n_heads)))
    ablation = Heads(bench, tokens, every, {})
    timed = bench.timed(ablation.makers_on_transformers(), rounds=setting.long_rounds)
    for attention, mark in (("eager", LENS_ON_CUDA), ("sdpa", None)):
        row = Row(
            section="heads",
            work=f"{len(every)} heads zeroed, {_shape(tokens)}",
            kernel=KERNEL,
            against=f"transformers {attention}, a loop of hooks, last logits only",
            mark=mark,
        )
        row = judged_on_cuda(bench, bench.row(row, timed, "sweep", attention))
        difference = None
        if not row.why:
            difference = relative_difference(
                *(_last(ablation.results[name]) for name in ("sweep", attention))
            )
        yield Measurement(
            precision=precision.name,
            row=row,
            difference=difference,
            tolerance=precision.tolerance,
        )


def _last(result: sweeps.LastResult) -> Tensor:
    if result.last is None:
        raise Absent("it was not run")
    return result.last.double().cpu()


def patched(bench: Bench, precision: Precision) -> Iterator[Measurement]:
    """The stream replaced at every layer and position: a sweep against our own forwards."""
    for row in patching.patching(bench):
        if row.kernel == KERNEL and row.against == patching.AGAINST:
            judged = judged_on_cuda(bench, row) if row.mark else row
            yield Measurement(precision=precision.name, row=judged)


def forward(bench: Bench, precision: Precision) -> Iterator[Measurement]:
    """Plain and recorded forwards."""
    for row in forwards.forward(bench):
        if row.kernel == KERNEL:
            yield Measurement(precision=precision.name, row=row)


def cache(bench: Bench, precision: Precision) -> Iterator[Measurement]:
    """Bytes of a cache of everything, against all tensors that TransformerLens stores."""
    passes = bench.setting.passes
    for (rows, width), mark in ((passes[-1], LONG), (passes[0], SHORT)):
        tokens = bench.setting.tokens(rows, width)
        ours, stored = _cache_bytes(bench, tokens)
        row = Row(
            section="cache",
            work=f"bytes kept, all recorded {rows}×{width}",
            kernel=KERNEL,
            against="every tensor that TransformerLens stores",
            ours=ours / MB,
            theirs=stored / MB,
            ratio=ours / stored,
            unit="MB",
            mark=mark,
        )
        yield Measurement(precision=precision.name, row=judged_on_cuda(bench, row))


@torch.no_grad()
def _cache_bytes(bench: Bench, tokens: Tensor) -> tuple[int, int]:
    """Bytes of a recorded run and of a run that stores every tensor, both without the logits."""
    run = interp.run(bench.ours.default, tokens, record="all")
    if run.logits is None:
        raise Absent("the run returned no logits")
    logits = bytes_held([run.logits])
    stored = forwards.all_stored(bench.ours.default, tokens).nbytes
    return run.cache.nbytes - logits, stored - logits


def memory(bench: Bench, precision: Precision) -> Iterator[Measurement]:
    """Peak memory of forwards against transformers, and of a sweep against its budget."""
    rows, width = bench.setting.passes[-1]
    tokens = bench.setting.tokens(rows, width)
    theirs = _peak(bench, forwards.huggingface(bench, "sdpa", tokens))
    for name, work in (
        ("plain forward", forwards.plain(bench, KERNEL, tokens)),
        ("all recorded", forwards.recorded(bench, KERNEL, tokens)),
    ):
        row = Row(
            section="memory", work=f"peak memory, {name} {rows}×{width}", kernel=KERNEL, unit="MB"
        )
        row = _compared(replace(row, against="transformers sdpa"), _peak(bench, work), theirs)
        yield Measurement(precision=precision.name, row=row)
    yield Measurement(precision=precision.name, row=judged_on_cuda(bench, _sweep_peak(bench)))


def _sweep_peak(bench: Bench) -> Row:
    setting = bench.setting
    budget = QUICK_BUDGET if setting.quick else BUDGET
    every = product(range(setting.shape.n_layers), range(setting.shape.n_heads))
    zeroed = [edits.zero("z", layer=layer, head=head) for layer, head in every]
    tokens = setting.tokens(*setting.prompts)
    work = partial(interp.sweep, bench.ours.default, tokens, zeroed, metric(), memory=budget)
    row = Row(
        section="memory",
        work=f"peak memory, {len(zeroed)} heads zeroed, {_shape(tokens)}",
        kernel=KERNEL,
        against="the budget memory=",
        unit="MB",
        mark=WITHIN_BUDGET,
    )
    return _compared(row, _peak(bench, work), budget / MB)


def _peak(bench: Bench, work: Work) -> float:
    return peak(work, bench.setting.device) / MB


def _compared(row: Row, ours: float, theirs: float) -> Row:
    return replace(row, ours=ours, theirs=theirs, ratio=ours / theirs if theirs else None)


def _shape(tokens: Tensor) -> str:
    return "×".join(map(str, tokens.shape))
