"""Time to ablate every head: a sweep against loops of whole forwards.

All compute the logit of one token at the last position of each prompt, with z of one head zeroed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
"""Number of rows at which matrix products reach the machine's highest rate."""

LENS = {"default": Mark(4, times_less=True), "packed": Mark(8.5, times_less=True)}
LENS_ON_CUDA = Mark(15, times_less=True)
HUGGINGFACE = {"default": Mark(2.7, times_less=True), "packed": Mark(5.5, times_less=True)}
FEWER = Mark(3, times_less=True)
LIMIT = Mark(1.2)


class LastResult:
    """A work that keeps its last result, so that values can be compared after timing."""

    def __init__(self, work: Callable[[], Tensor]) -> None:
        self._work = work
        self.last: Tensor | None = None

    def __call__(self) -> Tensor:
        """Do the work and keep its result."""
        self.last = self._work()
        return self.last


@dataclass(frozen=True, eq=False)
class Heads:
    """The ablation of ``heads`` on ``tokens`` by each library."""

    bench: Bench
    tokens: Tensor
    heads: Sequence[tuple[int, int]]
    results: dict[str, LastResult]

    def makers(self) -> Makers:
        """The sweep and brute force in each of our kernels, and the loops of other libraries."""
        makers = {
            "lens": self._lens,
            "transformers": partial(self._hooked, "sdpa"),
            "nnsight": self._nnsight,
        }
        for kernel in KERNELS:
            makers[f"sweep, {kernel}"] = partial(self._sweep, kernel)
            makers[f"brute, {kernel}"] = partial(self._brute, kernel)
        return self._keeping(makers)

    def makers_on_transformers(self) -> Makers:
        """The sweep, and loops of hooks on transformers with eager and with fused attention."""
        return self._keeping(
            {
                "sweep": partial(self._sweep, "default"),
                "eager": partial(self._hooked, "eager"),
                "sdpa": partial(self._hooked, "sdpa"),
            }
        )

    def _keeping(self, makers: Mapping[str, Callable[[], Callable[[], Tensor]]]) -> Makers:
        """The same works, whose last values are kept in ``results``."""

        def make(name: str) -> Work:
            self.results[name] = LastResult(makers[name]())
            return self.results[name]

        return {name: partial(make, name) for name in makers}

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
            def zero(z: Tensor, hook: object) -> Tensor:  # noqa: ARG001 - passed by TransformerLens
                z[:, :, head] = 0
                return z

            name = f"blocks.{layer}.attn.hook_z"
            logits = model.run_with_hooks(tokens, fwd_hooks=[(name, zero)])
            return logits[:, -1, TARGET].clone()  # a view would keep all logits

        return lambda: torch.stack([ablated(*head) for head in self.heads])

    def _hooked(self, attention: str) -> Callable[[], Tensor]:
        """A loop of hooks before the product by W_O; only logits of the last position are kept."""
        model = getattr(self.bench.peers, attention)
        tokens, d_head = self.tokens, self.bench.setting.shape.d_head

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

        def ablated(layer: int, head: int) -> Any:  # noqa: ANN401 - a proxy of nnsight
            columns = slice(head * d_head, (head + 1) * d_head)
            with model.trace(tokens, use_cache=False, logits_to_keep=1):
                model.transformer.h[layer].attn.c_proj.input[..., columns] = 0
                logits = model.output.logits[:, -1, TARGET].save()
            return logits  # noqa: RET504 - it has a value only after the trace

        return lambda: torch.stack([ablated(*head) for head in self.heads])


def metric() -> Metric:
    """The logit of one token at the last position."""
    return interp.metrics.logit(TARGET, pos=-1)


def swept(
    model: interp.Transformer, tokens: Tensor, edited: Sequence[Edit], measured: Metric
) -> Callable[[], Tensor]:
    """The values of ``interp.sweep``, ``[edit prompt]``."""
    return lambda: interp.sweep(model, tokens, edited, measured).values


def brute_force(
    model: interp.Transformer, tokens: Tensor, edited: Sequence[Edit], measured: Metric
) -> Callable[[], Tensor]:
    """One whole forward of ours for each edit, with all logits."""
    batch = model.batch(tokens)

    def one(edit: Edit) -> Tensor:
        return measure(measured, interp.run(model, tokens, edits=[edit]).require_logits(), batch)

    return lambda: torch.stack([one(edit) for edit in edited])


def heads(bench: Bench) -> Iterator[Row]:
    """Every head zeroed, one at a time."""
    shape, setting = bench.setting.shape, bench.setting
    tokens = setting.tokens(*setting.prompts)
    every = list(product(range(shape.n_layers), range(shape.n_heads)))
    some = Heads(bench, tokens, every[:: max(1, len(every) // 2)], {})
    bench.timed(some.makers(), rounds=1, warmup=0)  # the warm-up: a whole loop would take minutes
    every_head = Heads(bench, tokens, every, {})
    makers = every_head.makers()
    for kernel in KERNELS:
        makers |= bench.products(kernel, limit_rows(bench))
    timed = bench.timed(makers, rounds=setting.long_rounds, warmup=0)
    work = f"{len(every)} heads zeroed, {'×'.join(map(str, tokens.shape))}"
    zeroed = [edits.zero("z", layer=layer, head=head) for layer, head in every]
    counts = multiply_adds_of(bench.ours.default, tokens, zeroed, metric())
    for kernel in KERNELS:
        row = Row(section="heads", work=work, kernel=kernel)
        yield from _against_peers(bench, row, timed, every_head)
        yield from _against_ourselves(bench, row, timed, counts)


def multiply_adds_of(
    model: interp.Transformer, tokens: Tensor, edited: Sequence[Edit], measured: Metric
) -> tuple[float, float]:
    """Multiply-adds of the sweep and of brute force, whose forwards all cost the same."""
    of_sweep = multiply_adds(swept(model, tokens, edited, measured))
    of_one = multiply_adds(brute_force(model, tokens, edited[:1], measured))
    return of_sweep, of_one * len(edited)


def _against_peers(bench: Bench, row: Row, timed: Timed, ablation: Heads) -> Iterator[Row]:
    kernel, ours = row.kernel, f"sweep, {row.kernel}"
    for other, against, mark in (
        ("lens", "TransformerLens run_with_hooks", bench.mark(LENS[kernel], LENS_ON_CUDA)),
        (
            "transformers",
            "transformers, a hook, logits_to_keep=1",
            bench.mark(cpu=HUGGINGFACE[kernel]),
        ),
        ("nnsight", "nnsight trace, logits_to_keep=1", None),
    ):
        note = gap_note(ablation.results, ours, other)
        yield bench.row(replace(row, against=against, mark=mark, note=note), timed, ours, other)


def _against_ourselves(
    bench: Bench, row: Row, timed: Timed, counts: tuple[float, float]
) -> Iterator[Row]:
    """The sweep against brute force, in seconds and multiply-adds, and against its limit."""
    of_sweep, of_brute = counts
    ours, brute = f"sweep, {row.kernel}", f"brute, {row.kernel}"
    against = "brute force by our forward"
    alone = Products.count(bench.ours.default, limit_rows(bench))
    yield bench.row(replace(row, against=against), timed, ours, brute)
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
    limit = bench.limited(bench.row(row, timed, ours), timed, ours, (of_sweep, alone))
    if limit.of_limit is not None and limit.ours is not None:
        limit = replace(limit, ratio=limit.of_limit, theirs=limit.ours / limit.of_limit)
    yield replace(limit, against="its multiply-adds at the matrix rate", mark=bench.mark(cpu=LIMIT))


def limit_rows(bench: Bench) -> int:
    """Rows of the matrix products that set the limit of a sweep."""
    return bench.setting.prompts[0] if bench.setting.quick else WHOLE_ROWS


def gap_note(results: dict[str, LastResult], work: str, other: str, every: int = 1) -> str:
    """A note with the largest difference of two results; ``other`` has every ``every``-th value."""
    if work not in results or other not in results:
        return ""
    ours, theirs = results[work].last, results[other].last
    if ours is None or theirs is None:
        return ""
    gap = (ours[::every].double().cpu() - theirs.double().cpu()).abs().max().item()
    return f"values within {gap:.1g}"
