"""Time to patch the stream at every layer and position: a sweep against whole forwards.

The input stream of a layer is replaced at one position by that of other prompts; the metric is the
difference of two logits at the last position. The loops of whole forwards are timed on some cells,
evenly spaced, and their seconds are scaled to all cells, since each cell takes them one forward.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import torch
from torch import Tensor

import interp
from benchmarks.bench import Bench, Makers
from benchmarks.limits import Products
from benchmarks.models import KERNELS
from benchmarks.sweeps import (
    TARGET,
    LastResult,
    brute_force,
    gap_note,
    limit_rows,
    multiply_adds_of,
    swept,
)
from benchmarks.table import Mark, Row
from benchmarks.timing import Work
from interp import edits
from interp.edits import Edit
from interp.metrics import Metric

DISTRACTOR = 2
PATCHING = Mark(4, times_less=True)
AGAINST = "brute force by our forward"
LENS = Mark(5, times_less=True)
LOOPED = 24
"""Number of cells on which the loops are timed."""
AGAINST_LENS = "TransformerLens run_with_hooks"

Cells = Sequence[tuple[int, int]]
"""Layer and position of each patch."""


def patching(bench: Bench) -> Iterator[Row]:
    """The stream at each layer and position, replaced by that of another batch."""
    setting = bench.setting
    tokens = setting.tokens(*setting.prompts)
    cells = list(product(range(setting.shape.n_layers), range(tokens.shape[1])))
    few, every = cells[:: max(1, len(cells) // 2)], max(1, len(cells) // LOOPED)
    bench.timed(makers(bench, tokens, few, few, {}), rounds=1, warmup=0)  # to warm up
    results: dict[str, LastResult] = {}
    looped = cells[::every]
    works = makers(bench, tokens, cells, looped, results)
    for kernel in KERNELS:
        works |= bench.products(kernel, limit_rows(bench))
    timed = bench.timed(works, rounds=setting.long_rounds, warmup=0).scaled(
        {name: len(cells) / len(looped) for name in works if name.startswith(("brute", "lens"))}
    )
    work = f"{len(cells)} layers × positions replaced, {'×'.join(map(str, tokens.shape))}"
    alone = Products.count(bench.ours.default, limit_rows(bench))
    edited = _patches(bench, tokens, cells)
    of_sweep, of_brute = multiply_adds_of(bench.ours.default, tokens, edited, difference())
    for kernel in KERNELS:
        ours = f"sweep, {kernel}"
        for other, against, mark in (
            (f"brute, {kernel}", AGAINST, bench.mark(PATCHING, PATCHING)),
            ("lens", AGAINST_LENS, bench.mark(cpu=LENS)),
        ):
            parts = [gap_note(results, ours, other, every)]
            if every > 1:
                parts.append(f"the loop on {len(looped)} cells")
            note = "; ".join(filter(None, parts))
            row = Row(section="patching", work=work, kernel=kernel, against=against, note=note)
            row = bench.row(replace(row, mark=mark), timed, ours, other)
            yield bench.limited(row, timed, ours, (of_sweep, alone))
    yield Row(
        section="patching",
        work=work,
        kernel="default",
        against=AGAINST,
        ours=of_sweep / 1e9,
        theirs=of_brute / 1e9,
        unit="G mul-adds",
        ratio=of_sweep / of_brute,
    )


def difference() -> Metric:
    """The difference of two logits at the last position."""
    return interp.metrics.logit_diff(TARGET, DISTRACTOR, pos=-1)


def difference_of(logits: Tensor) -> Tensor:
    """The same difference for the logits of another library, one number per prompt."""
    return logits[:, -1, TARGET] - logits[:, -1, DISTRACTOR]


def other_prompts(bench: Bench, tokens: Tensor) -> Tensor:
    """As many prompts of the same width, with other tokens."""
    rows, width = tokens.shape
    return bench.setting.tokens(rows + 1, width)[:rows]


def _patches(bench: Bench, tokens: Tensor, cells: Cells) -> list[Edit]:
    other = other_prompts(bench, tokens)
    with torch.no_grad():
        cache = interp.run(bench.ours.default, other, record="resid_pre").cache
    streams = [cache["resid_pre", layer] for layer in range(bench.setting.shape.n_layers)]
    return [
        edits.replace("resid_pre", streams[layer][:, pos], layer=layer, pos=pos)
        for layer, pos in cells
    ]


def makers(
    bench: Bench, tokens: Tensor, cells: Cells, looped: Cells, results: dict[str, LastResult]
) -> Makers:
    """The sweep over ``cells`` in each kernel, and the loops over the cells of ``looped``.

    Their values are kept in ``results``.
    """
    edited, some = (_patches(bench, tokens, chosen) for chosen in (cells, looped))

    def make(how: Callable[..., Callable[[], Tensor]], kernel: str, name: str) -> Work:
        patches = edited if how is swept else some
        results[name] = LastResult(how(bench.ours[kernel], tokens, patches, difference()))
        return results[name]

    def make_lens() -> Work:
        results["lens"] = LastResult(_lens(bench, tokens, looped))
        return results["lens"]

    ours = {
        f"{name}, {kernel}": partial(make, how, kernel, f"{name}, {kernel}")
        for kernel in KERNELS
        for name, how in (("sweep", swept), ("brute", brute_force))
    }
    return {**ours, "lens": make_lens}


def _lens(bench: Bench, tokens: Tensor, cells: Cells) -> Callable[[], Tensor]:
    """A loop of ``run_with_hooks``, with streams from a cache of TransformerLens."""
    model, other = bench.peers.lens, other_prompts(bench, tokens)
    with torch.no_grad():
        names = [name for name in model.hook_dict if name.endswith("hook_resid_pre")]
        _, cache = model.run_with_cache(other, names_filter=names)

    def patched(layer: int, pos: int) -> Tensor:
        name = f"blocks.{layer}.hook_resid_pre"

        def patch(stream: Tensor, hook: object) -> Tensor:  # noqa: ARG001 - passed by the library
            stream[:, pos] = cache[name][:, pos]
            return stream

        return difference_of(model.run_with_hooks(tokens, fwd_hooks=[(name, patch)]))

    return lambda: torch.stack([patched(*cell) for cell in cells])
