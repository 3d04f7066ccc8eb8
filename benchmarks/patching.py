"""Time to patch the stream at every layer and position: a sweep against whole forwards.

The stream that enters a layer is replaced at one position by that of other prompts; the metric is
the difference of two logits at the last position.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

import interp
from benchmarks.bench import Bench, Makers
from benchmarks.limits import Products, multiply_adds
from benchmarks.models import KERNELS
from benchmarks.sweeps import TARGET, LastResult, brute_force, gap_note, limit_rows, swept
from benchmarks.table import Mark, Row
from benchmarks.timing import Work
from interp import edits
from interp.edits import Edit
from interp.metrics import Metric

DISTRACTOR = 2
PATCHING = Mark(4, times_less=True)
AGAINST = "brute force by our forward"


def patching(bench: Bench) -> Iterator[Row]:
    """The stream at each layer and position, replaced by that of another batch."""
    setting = bench.setting
    tokens = setting.tokens(*setting.prompts)
    edited, measured = _patches(bench, tokens), _difference()
    few = edited[:: max(1, len(edited) // 2)]
    bench.timed(_makers(bench, tokens, few, {}), rounds=1, warmup=0)  # to warm up
    results: dict[str, LastResult] = {}
    makers = _makers(bench, tokens, edited, results)
    for kernel in KERNELS:
        makers |= bench.products(kernel, limit_rows(bench))
    timed = bench.timed(makers, rounds=setting.long_rounds, warmup=0)
    work = f"{len(edited)} layers × positions replaced, {'×'.join(map(str, tokens.shape))}"
    alone = Products.count(bench.ours.default, limit_rows(bench))
    counted = multiply_adds(swept(bench.ours.default, tokens, edited, measured))
    of_one = multiply_adds(brute_force(bench.ours.default, tokens, edited[:1], measured))
    for kernel in KERNELS:
        row = Row(
            section="patching",
            work=work,
            kernel=kernel,
            against=AGAINST,
            mark=bench.mark(PATCHING, PATCHING),
            note=gap_note(results, f"sweep, {kernel}", f"brute, {kernel}"),
        )
        own = f"sweep, {kernel}"
        row = bench.row(row, timed, own, f"brute, {kernel}")
        yield bench.limited(row, timed, own, (counted, alone))
    yield Row(
        section="patching",
        work=work,
        kernel="default",
        against=AGAINST,
        ours=counted / 1e9,
        theirs=of_one * len(edited) / 1e9,
        unit="G mul-adds",
        ratio=counted / (of_one * len(edited)),
    )


def _difference() -> Metric:
    return interp.metrics.logit_diff(TARGET, DISTRACTOR, pos=-1)


def _patches(bench: Bench, tokens: Tensor) -> list[Edit]:
    rows, width = tokens.shape
    other = bench.setting.tokens(rows + 1, width)[:rows]
    with torch.no_grad():
        cache = interp.run(bench.ours.default, other, record="resid_pre").cache
    streams = [cache["resid_pre", layer] for layer in range(bench.setting.shape.n_layers)]
    return [
        edits.replace("resid_pre", stream[:, pos], layer=layer, pos=pos)
        for layer, stream in enumerate(streams)
        for pos in range(width)
    ]


def _makers(
    bench: Bench, tokens: Tensor, edited: list[Edit], results: dict[str, LastResult]
) -> Makers:
    """The sweep and brute force in each kernel; their values are kept in ``results``."""

    def make(how: Callable[..., Callable[[], Tensor]], kernel: str, name: str) -> Work:
        results[name] = LastResult(how(bench.ours[kernel], tokens, edited, _difference()))
        return results[name]

    return {
        f"{name}, {kernel}": partial(make, how, kernel, f"{name}, {kernel}")
        for kernel in KERNELS
        for name, how in (("sweep", swept), ("brute", brute_force))
    }
