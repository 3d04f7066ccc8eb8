"""Time to measure all heads on texts, against the forward that is needed for it at least."""

from collections.abc import Iterator
from functools import partial

from torch import Tensor

from benchmarks.bench import Bench, Makers
from benchmarks.forwards import plain
from benchmarks.table import Mark, Row
from benchmarks.timing import Forward, Work

SCANNED = Mark(1.5)


def scanned(bench: Bench, tokens: Tensor) -> Work:
    """``analyses.scan_heads`` with its default settings."""
    import analyses  # noqa: PLC0415 - imports pandas

    return partial(analyses.scan_heads, bench.ours.default, tokens)


def with_patterns(bench: Bench, tokens: Tensor) -> Forward:
    """What transformers needs to return all patterns, of which nothing is computed."""
    model = bench.peers.eager
    return lambda: model(tokens, use_cache=False, output_attentions=True).logits


def corpus(bench: Bench) -> Iterator[Row]:
    """Statistics of all heads, and all patterns of transformers, against our plain forward."""
    setting = bench.setting
    tokens = setting.tokens(*setting.corpus)
    makers: Makers = {
        "plain": partial(plain, bench, "default", tokens),
        "scan": partial(scanned, bench, tokens),
        "patterns": partial(with_patterns, bench, tokens),
    }
    timed = bench.timed(makers, rounds=setting.long_rounds, warmup=min(1, setting.warmup))
    heads = setting.shape.n_layers * setting.shape.n_heads
    shape = "×".join(map(str, tokens.shape))
    row = Row(
        section="corpus",
        work=f"statistics of {heads} heads {shape}",
        kernel="default",
        against="our plain forward",
        mark=bench.mark(cpu=SCANNED),
    )
    yield bench.row(row, timed, "scan", "plain")
    theirs = Row(
        section="corpus",
        work=f"plain forward {shape}",
        kernel="default",
        against="transformers eager, output_attentions=True",
    )
    yield bench.row(theirs, timed, "plain", "patterns")
