"""Time of a forward: plain, with everything recorded, or with everything formed and stored."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

import interp
from benchmarks.bench import Bench, Makers
from benchmarks.limits import Products, multiply_adds
from benchmarks.models import KERNELS
from benchmarks.table import Mark, Row
from benchmarks.timing import Forward, Timed, Work, ready
from interp import Cache, Point

PLAIN = {"default": Mark(1.0), "packed": Mark(0.55)}
RECORDED = {"default": Mark(1.05), "packed": Mark(0.60)}
STORED = {"default": Mark(0.80), "packed": Mark(0.45)}
RECORDED_ON_CUDA = Mark(1.15)

NOT_THEIRS = (Point.ATTN_IN, Point.MLP_IN, Point.RESULT)
"""TransformerLens stores these only on request: ``use_attn_in``, ``use_hook_mlp_in``,
``use_attn_result``."""


# ---- the works --------------------------------------------------------------------------------


def plain(bench: Bench, kernel: str, tokens: Tensor) -> Forward:
    """Our forward, which returns logits."""
    return partial(bench.ours[kernel], tokens)


def recorded(bench: Bench, kernel: str, tokens: Tensor) -> Work:
    """Our forward with every activation recorded."""
    return partial(interp.run, bench.ours[kernel], tokens, record="all")


def stored(bench: Bench, kernel: str, tokens: Tensor) -> Work:
    """Our forward, forming and keeping every tensor that TransformerLens stores."""
    return partial(all_stored, bench.ours[kernel], tokens)


def all_stored(model: interp.Transformer, tokens: Tensor) -> Cache:
    """A cache that holds every tensor that TransformerLens stores by default; none is derived."""
    theirs = [place for place in model.layout if place.point not in NOT_THEIRS]
    return interp.run(model, tokens, store=theirs).cache


def huggingface(bench: Bench, attention: str, tokens: Tensor) -> Forward:
    """The forward of transformers, without its key/value cache."""
    model = getattr(bench.peers, attention)
    return lambda: model(tokens, use_cache=False).logits


def lens_stored(bench: Bench, tokens: Tensor) -> Work:
    """``run_with_cache`` of TransformerLens."""
    return partial(bench.peers.lens.run_with_cache, tokens)


# ---- the comparisons --------------------------------------------------------------------------


def agreement(bench: Bench) -> Iterator[Row]:
    """The largest difference between our logits and those of each library, relative to the largest.

    The largest is that of the absolute values of our logits.
    """
    tokens = bench.setting.tokens(*bench.setting.passes[0])
    ours = _without_gradients(partial(bench.ours.default, tokens))
    works, absent = ready(
        {
            "packed": partial(plain, bench, "packed", tokens),
            "transformers sdpa": partial(huggingface, bench, "sdpa", tokens),
            "transformers eager": partial(huggingface, bench, "eager", tokens),
            "TransformerLens": lambda: partial(bench.peers.lens, tokens),
        }
    )
    for other in [*works, *absent]:
        gap = None if other in absent else _gap(works[other], ours)
        yield Row(
            section="agreement",
            work="largest difference of logits, of the largest",
            kernel="default",
            against=other,
            ours=gap,
            unit="",
            why=absent.get(other, ""),
        )


@torch.no_grad()
def _without_gradients(work: Forward) -> Tensor:
    """The logits of ``work``; packed kernels run only without gradients."""
    return work()


def _gap(work: Forward, ours: Tensor) -> float:
    return ((_without_gradients(work) - ours).abs().max() / ours.abs().max()).item()


def forward(bench: Bench) -> Iterator[Row]:
    """Plain and recorded forwards, against the plain forward of transformers."""
    for rows, width in bench.setting.passes:
        tokens = bench.setting.tokens(rows, width)
        makers: Makers = {
            "sdpa": partial(huggingface, bench, "sdpa", tokens),
            "eager": partial(huggingface, bench, "eager", tokens),
        }
        for kernel in KERNELS:
            makers |= {
                kernel: partial(plain, bench, kernel, tokens),
                f"recorded, {kernel}": partial(recorded, bench, kernel, tokens),
                **bench.products(kernel, tokens.numel()),
            }
        yield from _forward_rows(bench, bench.timed(makers), tokens)


def _forward_rows(bench: Bench, timed: Timed, tokens: Tensor) -> Iterator[Row]:
    alone = Products.count(bench.ours.default, tokens.numel())
    counted = multiply_adds(partial(bench.ours.default, tokens)), alone
    shape = "×".join(map(str, tokens.shape))
    for kernel in KERNELS:
        for work, name, marks in (
            ("plain forward", kernel, PLAIN),
            ("all recorded", f"recorded, {kernel}", RECORDED),
        ):
            row = Row(
                section="forward",
                work=f"{work} {shape}",
                kernel=kernel,
                against="transformers sdpa, plain",
                mark=bench.mark(cpu=marks[kernel]),
            )
            yield bench.limited(bench.row(row, timed, name, "sdpa"), timed, name, counted)
        row = Row(
            section="forward",
            work=f"all recorded {shape}",
            kernel=kernel,
            against="our plain forward",
            mark=bench.mark(cuda=RECORDED_ON_CUDA),
        )
        yield bench.row(row, timed, f"recorded, {kernel}", kernel)
    row = Row(
        section="forward",
        work=f"plain forward {shape}",
        kernel="default",
        against="transformers eager",
    )
    yield bench.row(row, timed, "default", "eager")


def formed(bench: Bench) -> Iterator[Row]:
    """Everything formed and stored, against TransformerLens, for every pass except the last."""
    for rows, width in bench.setting.passes[:-1]:
        tokens = bench.setting.tokens(rows, width)
        makers: Makers = {"lens": partial(lens_stored, bench, tokens)}
        for kernel in KERNELS:
            makers[kernel] = partial(stored, bench, kernel, tokens)
            makers |= bench.products(kernel, tokens.numel())
        timed = bench.timed(makers)
        alone = Products.count(bench.ours.default, tokens.numel())
        counted = multiply_adds(partial(all_stored, bench.ours.default, tokens)), alone
        for kernel in KERNELS:
            row = Row(
                section="stored",
                work=f"all formed and stored {rows}×{width}",
                kernel=kernel,
                against="TransformerLens run_with_cache",
                mark=bench.mark(cpu=STORED[kernel]),
            )
            row = bench.row(row, timed, kernel, "lens")
            yield bench.limited(row, timed, kernel, counted)
