"""Time to measure all heads on texts, against the forward that is needed for it at least."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from torch import Tensor

from benchmarks.bench import Bench, Makers
from benchmarks.forwards import plain
from benchmarks.table import Mark, Row
from benchmarks.timing import Forward, Work

SCANNED = Mark(1.5)


def scanned(bench: Bench, tokens: Tensor, *, whole: bool) -> Work:
    """``analyses.scan_heads`` with its default settings; or its pass over the texts alone.

    A scan that is cancelled after its last forward has all statistics, and no sequences, for which
    it runs the sample of texts once more.
    """
    import analyses  # noqa: PLC0415 - imports pandas

    cancelled = None if whole else lambda: True
    return partial(analyses.scan_heads, bench.ours.default, tokens, cancelled=cancelled)


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
        "pass": partial(scanned, bench, tokens, whole=False),
        "scan": partial(scanned, bench, tokens, whole=True),
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
    yield bench.row(row, timed, "pass", "plain")
    whole = replace(row, work=f"{row.work}, and sequences of all texts", mark=None)
    yield bench.row(whole, timed, "scan", "plain")
    theirs = Row(
        section="corpus",
        work=f"plain forward {shape}",
        kernel="default",
        against="transformers eager, output_attentions=True",
    )
    yield bench.row(theirs, timed, "plain", "patterns")
