"""Harvests: time against the forward that is needed, memory, bytes on the disk, reading."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

import interp
from benchmarks.bench import Bench, Makers
from benchmarks.forwards import plain
from benchmarks.memory import high_water
from benchmarks.models import Shape, config_of
from benchmarks.table import Mark, Row
from benchmarks.timing import Absent, Forward, Work
from interp.model import Span

SPEED, MEMORY, BYTES, READING = Mark(1 / 0.9), Mark(1.05), Mark(1.01), Mark(1.0)
TEXTS = 2
"""How many times as many texts as in a scan are harvested."""
TOKENS = (1_000_000, 10_000_000)
"""Tokens of the corpora whose peaks of memory are compared."""
TINY = Shape(n_layers=1, n_heads=2, d_model=16, d_vocab=50, n_ctx=64)
QUICK = 1000
"""How many times fewer tokens there are in a trial of the command."""
ROW_NUMBERS, WIDTH = 150_000, 512
"""Rows, and numbers in a row, of the harvest that is read."""


def harvest(bench: Bench) -> Iterator[Row]:
    """Each mark of harvests."""
    yield from _speed(bench)
    with TemporaryDirectory(prefix="harvest-") as name:
        yield from _memory(bench, Path(name))
        yield from _reading(bench, Path(name))


def _speed(bench: Bench) -> Iterator[Row]:
    """One place, the stream after the last block, against forwards of the same texts."""
    setting, model = bench.setting, bench.ours.default
    rows, width = setting.corpus
    tokens = setting.tokens(TEXTS * rows, width)
    last = setting.shape.n_layers
    with TemporaryDirectory(prefix="harvest-") as name:
        makers: Makers = {
            "harvest": lambda: _stored(model, tokens, ("resid_post", last - 1), Path(name)),
            "plain": partial(_in_parts, partial(plain, bench, "default"), tokens.split(rows)),
            "blocks": partial(_in_parts, partial(_blocks, model, last), tokens.split(rows)),
        }
        timed = bench.timed(makers, rounds=setting.long_rounds, warmup=min(1, setting.warmup))
    shape = "×".join(map(str, tokens.shape))
    for other, against in {
        "plain": "our plain forward",
        "blocks": "our blocks alone, without logits",
    }.items():
        row = Row(
            section="harvest",
            work=f"harvest of one place {shape}",
            kernel="default",
            against=against,
            mark=bench.mark(cpu=SPEED),
        )
        yield bench.row(row, timed, "harvest", other)


def _stored(
    model: interp.Transformer, tokens: Tensor, place: tuple[str, int], folder: Path
) -> Work:
    """A harvest into a new folder, which is removed before the next."""

    def work() -> interp.Harvest:
        shutil.rmtree(folder / "timed", ignore_errors=True)
        return interp.harvest(model, tokens, place, folder / "timed", rows=len(tokens))

    return work


def _in_parts(forward: Callable[[Tensor], Forward], parts: tuple[Tensor, ...]) -> Work:
    """Forwards of several batches, one after another."""
    forwards = [forward(part) for part in parts]
    return lambda: [each() for each in forwards]


def _blocks(model: interp.Transformer, stop: int, tokens: Tensor) -> Forward:
    batches = model.check(tokens)
    return lambda: model.stream(batches, span=Span(stop=stop))


def _memory(bench: Bench, folder: Path) -> Iterator[Row]:
    """Peak memory of processes that harvest two corpora, and the bytes of the larger harvest."""
    if bench.on_cuda:
        return
    few, many = (n // (QUICK if bench.setting.quick else 1) for n in TOKENS)
    try:
        smaller, larger = (_peak(n, folder / str(n)) / 1e6 for n in (few, many))
        peaks: dict[str, Any] = {"ours": larger, "theirs": smaller, "ratio": larger / smaller}
    except Absent as reason:
        peaks = {"why": str(reason)}
    row = Row(
        section="harvest",
        work=f"peak memory of the process, {many:,} tokens",
        kernel="default",
        against=f"{few:,} tokens",
        unit="MB",
        mark=MEMORY,
    )
    yield bench.judged(replace(row, **peaks))
    if "why" in peaks:
        return
    index = interp.Harvest(folder / str(many)).index
    size = sum(path.stat().st_size for path in (folder / str(many)).glob("shard-*")) / 1e6
    least = index.n_rows * (index.row_bytes + index.ids_bytes) / 1e6
    row = Row(
        section="harvest",
        work=f"bytes of shards, {many:,} tokens",
        kernel="default",
        against="activations and ids alone",
        ours=size,
        theirs=least,
        ratio=size / least,
        unit="MB",
        mark=BYTES,
    )
    yield bench.judged(row)


def _peak(n_tokens: int, folder: Path) -> int:
    """Peak memory of a new process that harvests a corpus with a tiny model, in bytes.

    Raises:
        Absent: this system does not report it.
    """
    words = [sys.executable, "-m", "benchmarks.harvest", str(n_tokens), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Absent(f"a process that harvests failed: {done.stderr.strip()[-200:]}")
    return int(done.stdout)


def _harvest_tiny(n_tokens: int, folder: Path) -> None:
    """Harvest random texts with one thread, and print the peak memory of this process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = interp.Transformer(config_of(TINY)).eval()
    generator = torch.Generator().manual_seed(0)
    width = TINY.n_ctx
    texts = (
        torch.randint(TINY.d_vocab, (width,), generator=generator) for _ in range(n_tokens // width)
    )
    interp.harvest(model, texts, ("resid_post", 0), folder, dtype="float16", shard_rows=2**16)
    print(high_water())


def _reading(bench: Bench, folder: Path) -> Iterator[Row]:
    """An epoch in random order, from files that were just read."""
    model = interp.Transformer(config_of(Shape(1, 1, WIDTH, 10, 512))).eval()
    n_texts = ROW_NUMBERS // 512 // (QUICK if bench.setting.quick else 1) + 1
    tokens = torch.zeros(n_texts, 512, dtype=torch.long)
    stored = interp.harvest(model, tokens, ("resid_post", 0), folder / "read", shard_rows=2**14)
    reader = interp.Harvest(folder / "read")
    epochs, nbytes = count(), 0
    seconds: list[float] = []
    for _ in range(bench.setting.long_rounds + 1):
        reader.set_epoch(next(epochs))
        began = perf_counter()
        nbytes = sum(x.nbytes for batch in reader for x in batch.values())
        seconds.append(perf_counter() - began)
    least = nbytes / 1e9
    ours = sorted(seconds[1:])[len(seconds[1:]) // 2]
    yield bench.judged(
        Row(
            section="harvest",
            work=f"an epoch of {stored.n_rows:,} rows of {WIDTH}, shuffled",
            kernel="default",
            against="1 GB/s",
            ours=ours,
            theirs=least,
            ratio=ours / least,
            rounds=len(seconds) - 1,
            mark=READING,
        )
    )


if __name__ == "__main__":
    _harvest_tiny(int(sys.argv[1]), Path(sys.argv[2]))
