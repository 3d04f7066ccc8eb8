"""How near sweeps of a pretrained model are to what they must compute, and to the matrix rate.

    python -m benchmarks.sweep_limit MODEL                                    # prints the table
    python -m benchmarks.sweep_limit MODEL --docs docs/explanation/runs.md  # and writes it there

Prompts are of two names (the bundled template ``ioi``), of one length. *Needed* are the
multiply-adds of what a later reader reads: the unedited forward; of an edited head, its rows of
W_O; every column of each later block, as all are keys of the next one; of the last block, keys and
values, and the rest at one column; of the vocabulary, two logits.
"""

import argparse
import copy
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn

import interp
from benchmarks.limits import Products, multiply_adds
from benchmarks.machine import load_average
from benchmarks.table import write_between
from interp import edits
from interp.edits import Edit
from interp.kernels import processor
from interp.metrics import Metric
from interp.prompts import logit_diff_of_prompts

MARKERS = ("<!-- figures of sweeps of a real model -->", "<!-- end of sweeps of a real model -->")
N_PAIRS, N_TIMED, N_CELLS, ROUNDS, ROWS = 32, 2, 10, 2, 512
"""Pairs that are counted and that are timed; cells scattered over a grid; rounds of timing; and
rows of products at their highest rate."""


@dataclass(frozen=True)
class Share:
    """A sweep, its multiply-adds, and its rate.

    Attributes:
        work: what is swept.
        brute: multiply-adds of one whole forward per edit.
        swept: multiply-adds of the sweep, with its baseline.
        needed: multiply-adds of what later readers need; ``None`` if that is not counted.
        times_less: processor's seconds of one whole forward per edit over those of the sweep.
        of_rate: multiply-adds per second over those of products alone.
    """

    work: str
    brute: float
    swept: float
    needed: float | None
    times_less: float
    of_rate: float

    def of_rows(self, work: str, n: int = 1, needed: float | None = None) -> "Share":
        """The same share with a name, for ``n`` prompts."""
        brute, swept = n * self.brute, n * self.swept
        return replace(self, work=work, brute=brute, swept=swept, needed=needed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep_limit")
    parser.add_argument("model", help="a name such as smollm2-135m, or a folder")
    parser.add_argument("--docs", type=Path, help="a page with the markers of this table")
    options = parser.parse_args(arguments)
    load, model = load_average(), interp.load(options.model)
    prompts = interp.read_template("ioi").fill(N_PAIRS, 0)
    metric = logit_diff_of_prompts(model.to_single_token, prompts[:N_TIMED])
    tokens = model.to_tokens([prompt.text for prompt in prompts[:N_TIMED]])
    table = to_markdown(
        [*shares(model, tokens, metric, N_PAIRS)], precision(model, tokens, metric), load
    )
    print(table)
    if options.docs:
        write_between(options.docs, table, MARKERS)
    return 0


def shares(
    model: interp.Transformer, tokens: Tensor, metric: Metric, n: int = N_PAIRS
) -> Iterator[Share]:
    """Each sweep, timed on ``tokens`` or on its first row; the first is counted for ``n`` rows."""
    first, n_blocks, width = metric.for_rows((0,), len(tokens)), len(model.blocks), tokens.shape[1]
    heads: list[Edit] = [
        edits.mean("z", layer=layer, head=head)
        for layer, head in product(range(n_blocks), range(model.blocks[0].attn.n_heads))
    ]
    grid: list[Edit] = [
        edits.zero("resid_pre", layer=layer, pos=pos)
        for layer, pos in product(range(n_blocks), range(width))
    ]
    scattered, needed = grid[7 :: len(grid) // N_CELLS][:N_CELLS], needed_of_heads(model, width)
    on_all, on_one = partial(_share, model, tokens, metric), partial(_share, model, tokens[:1])
    ablated = f"{len(heads)} heads ablated"
    yield on_all(heads).of_rows(f"{ablated}, {n} prompts", n, n * needed)
    yield on_one(first, heads).of_rows(f"{ablated}, 1 prompt", 1, needed)
    yield on_one(first, grid).of_rows(f"{len(grid)} cells of layer × position, 1 prompt")
    yield on_one(first, scattered).of_rows(f"{len(scattered)} scattered cells, 1 prompt")


def _share(
    model: interp.Transformer, tokens: Tensor, metric: Metric, edited: Sequence[Edit]
) -> Share:
    """The share of a sweep, with the multiply-adds of one row, and not named yet."""

    def swept() -> object:
        return interp.sweep(model, tokens, edited, metric)

    def whole() -> object:
        return interp.run(model, tokens).logits

    first, rows = metric.for_rows((0,), len(tokens)), len(tokens)
    of_first = multiply_adds(lambda: interp.sweep(model, tokens[:1], edited, first))
    brute = multiply_adds(lambda: interp.run(model, tokens[:1]).logits) * len(edited)
    seconds = [_seconds([swept, whole, Products(model, ROWS)]) for _ in range(ROUNDS)]
    of_sweep, of_whole, of_products = map(min, zip(*seconds, strict=True))
    rate = Products.count(model, ROWS) / of_products
    times_less = of_whole * len(edited) / of_sweep
    print(f"{len(edited)} edits × {rows}: {times_less:.1f} × less", file=sys.stderr, flush=True)
    return Share("", brute, of_first, None, times_less, rows * of_first / of_sweep / rate)


def _seconds(works: Sequence[Callable[[], object]]) -> list[float]:
    """Seconds of the processor for each work, one after another, whatever else runs meanwhile."""
    seconds: list[float] = []
    for work in works:
        with torch.no_grad():
            began = time.process_time()
            work()
            seconds.append(time.process_time() - began)
    return seconds


def needed_of_heads(model: interp.Transformer, width: int) -> float:
    """Multiply-adds of one prompt that later readers need, without an edit and for each head."""
    block, n_blocks, d_model = model.blocks[0], len(model.blocks), model.config.d_model
    attn, mlp = block.attn, sum(weight.numel() for weight in _matrices(block.mlp))
    heads, d_head = attn.n_heads, attn.d_head
    joint, output = attn.weight_qkv.numel(), attn.weight_o.numel()
    keys = joint - d_model * heads * d_head  # of keys and values
    mixed = heads * d_head * width * (width + 1)  # q·k and A·v of all columns, with the mask
    whole = width * (joint + output + mlp) + mixed
    last = width * keys + d_model * heads * d_head + 2 * heads * d_head * width + output + mlp
    edited = d_model * d_head
    before_last = sum(
        width * (edited + mlp) + (n_blocks - 2 - layer) * whole + last
        for layer in range(n_blocks - 1)
    )
    baseline = (n_blocks - 1) * whole + last
    return baseline + heads * (before_last + edited + mlp + n_blocks * 2 * d_model)


def _matrices(part: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in part.parameters() if weight.ndim == 2]  # noqa: PLR2004


def precision(model: interp.Transformer, tokens: Tensor, metric: Metric) -> str:
    """The speed of products in bfloat16, and what it does to the effects of some heads."""
    half = copy.deepcopy(model).to(torch.bfloat16)
    works = [Products(model, ROWS), Products(half, ROWS)]
    seconds = [_seconds(works) for _ in range(ROUNDS)]
    of_full, of_half = map(min, zip(*seconds, strict=True))
    heads = list(product(range(len(model.blocks)), range(model.blocks[0].attn.n_heads)))
    sample = [edits.zero("z", layer=n, head=h) for n, h in heads[:: len(heads) // N_CELLS]]
    tables = [interp.sweep(each, tokens, sample, metric) for each in (model, half)]
    effects, rounded = ((table.values - table.baseline).mean(1) for table in tables)
    error, size = float((rounded - effects).abs().max()), float(effects.abs().median())
    return (
        f"Products alone are {of_full / of_half:.1f} times as fast in bfloat16, which changes the "
        f"effects of {len(sample)} heads by up to {error:.2g}; their median size is {size:.2g}"
    )


def to_markdown(rows: Sequence[Share], note: str, load: str) -> str:
    """The table, with what bfloat16 would change, and the machine, below it."""
    lines = [
        "| sweep | multiply-adds, brute force | of the sweep | needed | time | of matrix rate |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        least = "" if row.needed is None else f"{row.needed / 1e9:,.0f} G"
        lines.append(
            f"| {row.work} | {row.brute / 1e9:,.0f} G | {row.swept / 1e9:,.0f} G, "
            f"{row.brute / row.swept:.1f} × fewer | {least} | {row.times_less:.1f} × less | "
            f"{row.of_rate:.0%} |"
        )
    threads = torch.get_num_threads()
    where = f"{processor()}, threads {threads}, torch {torch.__version__}, load before {load}"
    return "\n".join([*lines, "", f"{note}. Measured in seconds of the processor with {where}."])


if __name__ == "__main__":
    sys.exit(main())
