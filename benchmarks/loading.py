"""Time and peak memory of loading a folder with a model of GPT-2-small's shape, and its tokenizer.

The tokenizer has as many tokens as the model, from random merges. Both libraries load both.
"""

import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import interp
from benchmarks.bench import Bench
from benchmarks.caches import MB
from benchmarks.memory import peak
from benchmarks.peers import imported
from benchmarks.table import Mark, Row
from benchmarks.timing import Absent, Work

SECONDS, MEMORY = Mark(1.5), Mark(1.3)
MERGED = 6000
"""Tokens that the random merges are drawn from."""
LONGEST = 12
"""Most characters of a token."""


def loading(bench: Bench) -> Iterator[Row]:
    """The time, against transformers, for a folder it wrote; the peak, against the weights."""
    kind = "float32, on a CPU"
    seconds = Row(
        section="loading",
        work=f"load a folder with a tokenizer, {kind}",
        kernel="",
        against="transformers from_pretrained",
        mark=bench.mark(cpu=SECONDS),
    )
    memory = Row(
        section="loading",
        work=f"peak memory, load a folder with a tokenizer, {kind}",
        kernel="",
        against="the weights",
        unit="MB",
        mark=bench.mark(cpu=MEMORY),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            library = _write(bench, folder)
        except Absent as reason:
            yield bench.judged(_unmeasured(seconds, reason))
            yield bench.judged(_unmeasured(memory, reason))
            return
        makers = {
            "ours": lambda: partial(interp.load, folder),
            "theirs": lambda: _theirs(library, folder),
        }
        yield bench.row(seconds, bench.timed(makers), "ours", "theirs")
        yield bench.judged(_peak(memory, folder))


def _write(bench: Bench, folder: Path) -> Any:  # noqa: ANN401 - a module of transformers
    """Write our model and a tokenizer into a folder, and return transformers, which writes it."""
    library = imported("transformers", "transformers")
    model = bench.peers.sdpa.to("cpu", torch.float32)
    model.save_pretrained(folder)
    backend = _tokenizer(model.config.vocab_size)
    library.PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(folder)
    return library


def _tokenizer(size: int) -> Tokenizer:
    """A byte-level BPE of ``size`` tokens, whose merges are random."""
    generator = random.Random(0)
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet())[:size]
    vocab = {token: id_ for id_, token in enumerate(tokens)}
    merges: list[tuple[str, str]] = []
    while len(tokens) < size:
        bound = min(len(tokens), MERGED)
        pair = tokens[generator.randrange(bound)], tokens[generator.randrange(bound)]
        token = "".join(pair)
        if token not in vocab and len(token) <= LONGEST:
            vocab[token] = len(vocab)
            tokens.append(token)
            merges.append(pair)
    backend = Tokenizer(models.BPE(vocab, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def _theirs(library: Any, folder: Path) -> Work:  # noqa: ANN401 - a module of transformers
    library.utils.logging.disable_progress_bar()

    def load() -> tuple[Any, Any]:
        model = library.GPT2LMHeadModel.from_pretrained(folder)
        return model, library.AutoTokenizer.from_pretrained(folder)

    return load


def _peak(row: Row, folder: Path) -> Row:
    weights = sum(weight.nbytes for weight in interp.load(folder).parameters())
    try:
        most = peak(partial(interp.load, folder), torch.device("cpu"))
    except Absent as reason:
        return _unmeasured(row, reason)
    return replace(row, ours=most / MB, theirs=weights / MB, ratio=most / weights)


def _unmeasured(row: Row, reason: Absent) -> Row:
    return replace(row, why=str(reason))
