"""Time to measure all heads on texts, against the forward that is needed for it at least."""

import sysconfig
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.bench import Bench, Makers
from benchmarks.forwards import plain
from benchmarks.table import Mark, Row
from benchmarks.timing import Absent, Forward, Work
from interp import Transformer, load

SCANNED = Mark(1.5)
BUNDLED = "python-4l"
N_TOKENS, ROWS = 10**6, 64
"""Tokens of source code for the bundled model, and texts of a forward, as a scan has by default."""
QUICK = 1000
"""How many times fewer tokens there are in a trial of the command."""
SMALL = Mark(5.0)
"""A small model's forward takes little more than its patterns, which a scan forms in addition."""


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
    yield from _source_code(bench)


def _source_code(bench: Bench) -> Iterator[Row]:
    """A million tokens through a bundled model, each text as long as its context."""
    setting = bench.setting
    model = load(BUNDLED).to(setting.device)
    tokens = _tokens_of_source_code(model, N_TOKENS // (QUICK if setting.quick else 1))
    makers: Makers = {
        "plain": lambda: partial(_plain, model, tokens),
        "scan": lambda: partial(_scanned, model, tokens),
    }
    timed = bench.timed(makers, rounds=1, warmup=0)
    row = Row(
        section="corpus",
        work=f"statistics of 32 heads of {BUNDLED}, {tokens.numel():,} tokens",
        kernel="default",
        against="its plain forward",
        mark=bench.mark(cpu=SMALL),
    )
    yield bench.row(row, timed, "scan", "plain")


def _tokens_of_source_code(model: Transformer, n_tokens: int) -> Tensor:
    """Tokens of Python's standard library, in rows of the context's width."""
    files = sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"))
    rows: list[Tensor] = []
    width, tokenizer = model.config.n_ctx, model.tokenizer
    if tokenizer is None:
        raise Absent(f"{BUNDLED} has no tokenizer")
    for file in files:
        text = file.read_text(encoding="utf-8", errors="ignore")
        ids = torch.tensor(tokenizer.encode(text), device=model.device)
        rows += [row for row in ids.split(width) if len(row) == width]
        if len(rows) * width >= n_tokens:
            break
    return torch.stack(rows[: n_tokens // width])


def _plain(model: Transformer, tokens: Tensor) -> None:
    for rows in tokens.split(ROWS):
        model(rows)


def _scanned(model: Transformer, tokens: Tensor) -> object:
    import analyses  # noqa: PLC0415 - imports pandas

    return analyses.scan_heads(model, tokens, rows=ROWS)
