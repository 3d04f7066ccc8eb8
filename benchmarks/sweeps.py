"""How long does it take to ablate every head? A sweep against loops of whole forwards.

All measure the same: the logit of one token at the last position of each prompt, with one head's z
zeroed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

import interp
from benchmarks.bench import Bench, Makers
from benchmarks.limits import Products, multiply_adds
from benchmarks.models import KERNELS
from benchmarks.table import Mark, Row
from benchmarks.timing import Timed, Work
from interp import edits
from interp.edits import Edit
from interp.metrics import Metric, measure

TARGET = 1
WHOLE_ROWS = 2048
"""As many as bring products to the machine's best rate."""

LENS = {"default": Mark(4, times_less=True), "packed": Mark(8.5, times_less=True)}
LENS_ON_CUDA = Mark(15, times_less=True)
HUGGINGFACE = {"default": Mark(2.7, times_less=True), "packed": Mark(5.5, times_less=True)}
FEWER = Mark(3, times_less=True)
LIMIT = Mark(1.2)


class Remembering:
    """A work whose last result is kept, to see afterwards that all computed the same."""

    def __init__(self, work: Callable[[], Tensor]) -> None:
        self._work = work
        self.last: Tensor | None = None

    def __call__(self) -> Tensor:
        """Do it."""
        self.last = self._work()
        return self.last


@dataclass(frozen=True, eq=False)
class Heads:
    """The ablation of some heads on some prompts, by every library's means."""

    bench: Bench
    tokens: Tensor
    heads: Sequence[tuple[int, int]]
    results: dict[str, Remembering]

    def makers(self) -> Makers:
        """What is timed: the sweep and brute force in each kernel, and the loops of others."""
        makers: Makers = {
            "lens": partial(self._remembered, "lens", self._lens),
            "transformers": partial(self._remembered, "transformers", self._huggingface),
            "nnsight": partial(self._remembered, "nnsight", self._nnsight),
        }
        for kernel in KERNELS:
            for name, make in (("sweep", self._sweep), ("brute", self._brute)):
                named = f"{name}, {kernel}"
                makers[named] = partial(self._remembered, named, partial(make, kernel))
        return makers

    def _remembered(self, name: str, make: Callable[[], Callable[[], Tensor]]) -> Work:
        self.results[name] = Remembering(make())
        return self.results[name]

    def _edits(self) -> list[Edit]:
        return [edits.zero("z", layer=layer, head=head) for layer, head in self.heads]

    def _sweep(self, kernel: str) -> Callable[[], Tensor]:
        return swept(self.bench.ours[kernel], self.tokens, self._edits(), metric())

    def _brute(self, kernel: str) -> Callable[[], Tensor]:
        return brute_force(self.bench.ours[kernel], self.tokens, self._edits(), metric())

    def _lens(self) -> Callable[[], Tensor]:
        """A loop of ``run_with_hooks``."""
        model, tokens = self.bench.peers.lens, self.tokens

        def ablated(layer: int, head: int) -> Tensor:
            def zero(z: Tensor, hook: object) -> Tensor:  # noqa: ARG001 - how it is called
                z[:, :, head] = 0
                return z

            name = f"blocks.{layer}.attn.hook_z"
            logits = model.run_with_hooks(tokens, fwd_hooks=[(name, zero)])
            return logits[:, -1, TARGET].clone()  # a view would hold all of the logits

        return lambda: torch.stack([ablated(*head) for head in self.heads])

    def _huggingface(self) -> Callable[[], Tensor]:
        """A hook before the product by W_O, and only the last position's logits."""
        model, tokens, d_head = self.bench.peers.sdpa, self.tokens, self.bench.setting.shape.d_head

        def ablated(layer: int, head: int) -> Tensor:
            def zero(_: object, inputs: tuple[Tensor]) -> tuple[Tensor]:
                z = inputs[0].clone()
                z[..., head * d_head : (head + 1) * d_head] = 0
                return (z,)

            handle = model.transformer.h[layer].attn.c_proj.register_forward_pre_hook(zero)
            try:
                logits = model(tokens, use_cache=False, logits_to_keep=1).logits
                return logits[:, -1, TARGET].clone()
            finally:
                handle.remove()

        return lambda: torch.stack([ablated(*head) for head in self.heads])

    def _nnsight(self) -> Callable[[], Tensor]:
        """A loop of traces."""
        model, tokens, d_head = (
            self.bench.peers.nnsight,
            self.tokens,
            self.bench.setting.shape.d_head,
        )

        def ablated(layer: int, head: int) -> Any:  # noqa: ANN401 - its own kind of tensor
            columns = slice(head * d_head, (head + 1) * d_head)
            with model.trace(tokens, use_cache=False, logits_to_keep=1):
                model.transformer.h[layer].attn.c_proj.input[..., columns] = 0
                logits = model.output.logits[:, -1, TARGET].save()
            return logits  # noqa: RET504 - it has a value only once the trace is over

        return lambda: torch.stack([ablated(*head) for head in self.heads])


def metric() -> Metric:
    """The logit of one token at the last position."""
    return interp.metrics.logit(TARGET, pos=-1)


def swept(
    model: interp.Transformer, tokens: Tensor, edited: Sequence[Edit], measured: Metric
) -> Callable[[], Tensor]:
    """``interp.sweep``."""
    return lambda: interp.sweep(model, tokens, edited, measured).values


def brute_force(
    model: interp.Transformer, tokens: Tensor, edited: Sequence[Edit], measured: Metric
) -> Callable[[], Tensor]:
    """A whole forward of ours an edit, and all of its logits."""
    batch = model.batch(tokens)

    def one(edit: Edit) -> Tensor:
        return measure(measured, interp.run(model, tokens, edits=[edit]).logits, batch)

    return lambda: torch.stack([one(edit) for edit in edited])


def heads(bench: Bench) -> Iterator[Row]:
    """Every head zeroed in turn."""
    shape, setting = bench.setting.shape, bench.setting
    tokens = setting.tokens(*setting.prompts)
    every = list(product(range(shape.n_layers), range(shape.n_heads)))
    some = Heads(bench, tokens, every[:: max(1, len(every) // 2)], {})
    bench.timed(some.makers(), rounds=1, warmup=0)  # to warm up: a whole loop would take minutes
    whole = Heads(bench, tokens, every, {})
    makers = whole.makers()
    for kernel in KERNELS:
        makers |= bench.products(kernel, limit_rows(bench))
    timed = bench.timed(makers, rounds=setting.long_rounds, warmup=0)
    work = f"{len(every)} heads zeroed, {'×'.join(map(str, tokens.shape))}"
    counts = _counts(bench, tokens, every)
    for kernel in KERNELS:
        row = Row(section="heads", work=work, kernel=kernel)
        yield from _against_peers(bench, row, timed, whole)
        yield from _against_ourselves(bench, row, timed, counts)


def _counts(bench: Bench, tokens: Tensor, every: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Multiply-adds of the sweep, and of brute force (where every forward does as many)."""
    model = bench.ours.default
    edited = [edits.zero("z", layer=layer, head=head) for layer, head in every]
    of_sweep = multiply_adds(swept(model, tokens, edited, metric()))
    of_one = multiply_adds(brute_force(model, tokens, edited[:1], metric()))
    return of_sweep, of_one * len(edited)


def _against_peers(bench: Bench, row: Row, timed: Timed, done: Heads) -> Iterator[Row]:
    kernel, own = row.kernel, f"sweep, {row.kernel}"
    for other, against, mark in (
        ("lens", "TransformerLens run_with_hooks", bench.mark(LENS[kernel], LENS_ON_CUDA)),
        (
            "transformers",
            "transformers, a hook, logits_to_keep=1",
            bench.mark(cpu=HUGGINGFACE[kernel]),
        ),
        ("nnsight", "nnsight trace, logits_to_keep=1", None),
    ):
        asked = replace(row, against=against, mark=mark)
        note = agreeing(done.results, own, other)
        yield bench.row(replace(asked, note=note), timed, own, other)


def _against_ourselves(
    bench: Bench, row: Row, timed: Timed, counts: tuple[float, float]
) -> Iterator[Row]:
    """Against brute force: seconds, multiply-adds; and against what those take at the least."""
    of_sweep, of_brute = counts
    own, brute = f"sweep, {row.kernel}", f"brute, {row.kernel}"
    against = "brute force by our forward"
    alone = Products.count(bench.ours.default, limit_rows(bench))
    yield bench.row(replace(row, against=against), timed, own, brute)
    if row.kernel == KERNELS[0]:
        counted = replace(
            row,
            against=against,
            ours=of_sweep / 1e9,
            theirs=of_brute / 1e9,
            unit="G mul-adds",
            ratio=of_sweep / of_brute,
            mark=bench.mark(FEWER, FEWER),
        )
        yield bench.judged(counted)
    limit = bench.limited(bench.row(row, timed, own), timed, own, (of_sweep, alone))
    if limit.of_limit is not None and limit.ours is not None:
        limit = replace(limit, ratio=limit.of_limit, theirs=limit.ours / limit.of_limit)
    yield replace(limit, against="its multiply-adds at the matrix rate", mark=bench.mark(cpu=LIMIT))


def limit_rows(bench: Bench) -> int:
    """Rows of the products whose rate is the limit of a sweep."""
    return bench.setting.prompts[0] if bench.setting.quick else WHOLE_ROWS


def agreeing(results: dict[str, Remembering], own: str, other: str) -> str:
    """How far two results are from one another."""
    if own not in results or other not in results:
        return ""
    ours, theirs = results[own].last, results[other].last
    if ours is None or theirs is None:
        return ""
    gap = (ours.double().cpu() - theirs.double().cpu()).abs().max().item()
    return f"values within {gap:.1g}"
