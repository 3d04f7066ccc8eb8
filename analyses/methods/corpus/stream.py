"""The largest values of a measure over a corpus, and the distribution of all values.

Texts are run in batches, and only those with the largest values so far are kept. The result depends
neither on the size of the batches nor on padding.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.corpus.distribution import Distribution
from analyses.methods.corpus.measures import Measure
from analyses.methods.corpus.top_cells import TopCells
from interp.errors import InvalidInput, shorten
from interp.execution import run
from interp.executors import map_batches
from interp.harvests import Harvest
from interp.io import ProgressLike, as_progress
from interp.model import Batch, Stack, TokenInput
from interp.prompts import Pool, no_texts, pools_of
from interp.transformer import TextNetwork

Text = tuple[Batch, ...]
"""One text, as a batch of one row per stack."""
POOL = 1024
"""Number of texts in memory at a time, which are sorted by length and divided into batches."""


@dataclass(frozen=True)
class Settings:
    """Settings of one pass over a corpus.

    Attributes:
        top: number of cells to keep for each unit.
        rows: texts per forward; fewer of long ones.
        lowest: whether to keep the smallest values instead of the largest.
        bos: whether the cells of BOS tokens count (for attention, those whose key is BOS).
        sample: number of texts to keep from the beginning of the corpus.
    """

    top: int = 10
    rows: int = 64
    lowest: bool = False
    bos: bool = True
    sample: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.bos, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"bos={shorten(self.bos)} should be True or False.")


@dataclass(frozen=True, eq=False)
class Streamed:
    """The result of one pass over a corpus.

    Attributes:
        value: the largest values of each unit, in descending order; the smallest in ascending order
            if ``lowest`` was set.
        text: index of the text of each value in the corpus, from 0.
        pos: position of each value in its text; for attention, the position of the query.
        key: for attention, the position of the key; otherwise 0.
        texts: the texts of these values, by index.
        sources: where these texts were read, by index.
        distribution: the distribution of all values.
        sample: the first texts of the corpus.
        n_texts: number of texts; each part of a text that was cut counts as one.
        n_tokens: number of tokens in the stack whose tokens have values.
        n_cut: number of parts that begin within a text, which was longer than the context.
        sha256: hash of all texts.
        complete: whether the corpus was read to its end.
    """

    value: Float[Tensor, "unit top"]
    text: Int[Tensor, "unit top"]
    pos: Int[Tensor, "unit top"]
    key: Int[Tensor, "unit top"]
    texts: dict[int, Text]
    sources: dict[int, str]
    distribution: Distribution
    sample: tuple[Text, ...]
    n_texts: int
    n_tokens: int
    n_cut: int
    sha256: str
    complete: bool

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the reader: texts that were cut, and whether the pass was cancelled."""
        cut = f"texts longer than the context were cut, {self.n_cut} times"
        part = f"cancelled after {self.n_texts} texts"
        return (*([cut] if self.n_cut else []), *([] if self.complete else [part]))


def stream_corpus(
    model: TextNetwork,
    texts: Any,  # noqa: ANN401 - what pools_of reads
    measure: Measure,
    settings: Settings,
    *,
    progress: ProgressLike = None,
    cancelled: Callable[[], bool] | None = None,
) -> Streamed:
    """Measure every text of a corpus.

    Args:
        model: the model.
        texts: see :func:`texts_of`.
        measure: the measure.
        settings: the settings of the pass.
        progress: called after each batch with the amount read and the total: in bytes for a file,
            otherwise in texts (for an iterator, the total is the number of texts read so far).
        cancelled: called after each batch; if it returns True, the result so far is returned.

    Raises:
        InvalidInput: the corpus holds no text, or no value to measure; or a text can't be read.
    """
    progress = as_progress(progress, "texts")
    totals = _Totals(measure, settings)
    current: Pool | None = None
    done = read = 0
    forwards = _forwards(pools_of(model, texts_of(model, texts), POOL), settings.rows)
    with closing(map_batches(model, totals.reduction, forwards)) as results:
        for texts_read, values in results:
            pool = texts_read.pool
            if pool is not current:
                read = read if current is None else current.done
                current, done = pool, 0
                totals.add_pool(pool)
            totals.add(texts_read, values)
            done += len(texts_read.numbers)
            report = pool.progress(progress, read)
            if report is not None:
                report(done, len(pool.sources))
            if cancelled is not None and cancelled():
                return totals.result(complete=False)
    return totals.result(complete=True)


def texts_of(model: TextNetwork, corpus: Any) -> Any:  # noqa: ANN401 - what pools_of reads
    """The texts of a harvest, or what :func:`interp.prompts.pools_of` reads as it is.

    Raises:
        InvalidInput: the harvest is of another model.
    """
    return corpus.texts(model) if isinstance(corpus, Harvest) else corpus


def values_of(measure: Measure, texts: Text) -> Float[Tensor, "unit row pos key"]:
    """The values at all cells of some texts, including cells that do not count."""
    stop = measure.stop_at_layer
    done = run(measure.model, *texts, record=measure.place, stop_at_layer=stop)
    return measure.values(done.cache)


@dataclass(frozen=True, eq=False)
class TextsRead:
    """The texts of a forward.

    Attributes:
        pool: the texts that were read with them.
        numbers: their numbers in the corpus, in ascending order.
        batches: their tokens.
    """

    pool: Pool
    numbers: Int[Tensor, " row"]
    batches: Text

    def __str__(self) -> str:
        return self.pool.names(self.numbers - self.pool.first)


Forward = tuple[Int[Tensor, " row"], Text]
"""The numbers and the tokens of some texts."""


def _forwards(pools: Iterator[Pool], rows: int) -> Iterator[tuple[TextsRead, Forward]]:
    """The texts of each forward."""
    for pool in pools:
        for numbers, batches in pool.split(rows):
            yield TextsRead(pool, numbers, batches), (numbers, batches)


@dataclass(frozen=True, eq=False)
class Values:
    """What remains of the values of some texts.

    Attributes:
        distribution: the distribution of all values.
        top: the largest of them; of their negatives, if the smallest are asked for.
        n_tokens: number of tokens whose values they are.
    """

    distribution: Distribution
    top: TopCells
    n_tokens: int


@dataclass(frozen=True, eq=False)
class Reduction:
    """Measures some texts; what remains does not depend on their number.

    Attributes:
        measure: the measure.
        settings: the settings of the pass.
    """

    measure: Measure
    settings: Settings

    @property
    def n_pos(self) -> int:
        """The largest number of tokens that have values."""
        return _longest(self.measure.model.stacks[self.measure.stack])

    @property
    def n_key(self) -> int:
        """The largest number of keys of a token."""
        key_stack = self.measure.key_stack
        return 1 if key_stack is None else _longest(self.measure.model.stacks[key_stack])

    def empty(self) -> Values:
        """The values of no texts."""
        units, device = self.measure.units, self.measure.model.device
        return Values(Distribution(units, device), TopCells(units, self.settings.top, device), 0)

    @torch.no_grad()
    def __call__(self, forward: Forward) -> Values:
        """The values of some texts."""
        numbers, batches = forward
        counted = self.measure.counted(batches)
        if not self.settings.bos:
            counted = counted & ~self.measure.at_bos(batches)
        values = values_of(self.measure, batches)[:, counted]
        row, pos, key = counted.nonzero().unbind(-1)
        text = numbers.to(row.device)[row]
        reduced = self.empty()
        reduced.distribution.add(values)
        sign = -1 if self.settings.lowest else 1
        reduced.top.add(sign * values, (text * self.n_pos + pos) * self.n_key + key)
        return replace(reduced, n_tokens=int(batches[self.measure.stack].is_real.sum()))


class _Totals:
    """Accumulates the result over the texts of a corpus."""

    def __init__(self, measure: Measure, settings: Settings) -> None:
        self.measure, self.settings = measure, settings
        self.reduction = Reduction(measure, settings)
        self.n_pos, self.n_key = self.reduction.n_pos, self.reduction.n_key
        empty = self.reduction.empty()
        self.distribution, self.top = empty.distribution, empty.top
        self.texts: dict[int, Text] = {}
        self.sources: dict[int, str] = {}
        self.sample: dict[int, Text] = {}
        self.running = hashlib.sha256()
        self.n_texts = self.n_tokens = self.n_cut = 0

    def add_pool(self, pool: Pool) -> None:
        """Add the texts of a pool to the hash, and count those that were cut."""
        self.n_cut += pool.n_cut
        pool.digest(self.running)

    def add(self, texts_read: TextsRead, values: Values) -> None:
        """Add the values of some texts."""
        self.distribution.merge(values.distribution)
        self.top.merge(values.top)
        self.n_texts += len(texts_read.numbers)
        self.n_tokens += values.n_tokens
        self._keep(texts_read.pool, texts_read.numbers, texts_read.batches)

    def _keep(self, pool: Pool, numbers: Int[Tensor, " row"], batches: Text) -> None:
        """Keep the texts of the largest values and of the sample, and drop all others."""
        wanted = set((self.top.cell // (self.n_pos * self.n_key)).unique().tolist())
        self.texts = {n: text for n, text in self.texts.items() if n in wanted}
        self.sources = {n: self.sources[n] for n in self.texts}
        for row, number in enumerate(numbers.tolist()):
            if number in wanted or number < self.settings.sample:
                index = torch.tensor([row], device=batches[0].ids.device)
                text = tuple(batch.rows(index).padded_right() for batch in batches)
                if number in wanted:
                    self.texts[number] = text
                    self.sources[number] = pool.sources[number - pool.first]
                if number < self.settings.sample:
                    self.sample[number] = text

    def result(self, *, complete: bool) -> Streamed:
        """The result over all texts added so far."""
        if not self.n_texts:
            raise no_texts()
        if not self.distribution.n:
            raise InvalidInput(
                f"{self.measure.name} has no value in this corpus: each of its {self.n_texts} "
                "texts has a single token, or none besides BOS. Give longer texts."
            )
        cell = self.top.cell.cpu()
        text = cell // (self.n_pos * self.n_key)
        value = self.top.value.cpu()
        return Streamed(
            value=-value if self.settings.lowest else value,
            text=text,
            pos=cell // self.n_key % self.n_pos,
            key=cell % self.n_key,
            texts=self.texts,
            sources=self.sources,
            distribution=self.distribution,
            sample=tuple(self.sample[n] for n in sorted(self.sample)),
            n_texts=self.n_texts,
            n_tokens=self.n_tokens,
            n_cut=self.n_cut,
            sha256=self.running.hexdigest(),
            complete=complete,
        )


def _longest(stack: Stack) -> int:
    """The largest number of tokens that a stack reads."""
    read_by = stack.input
    if isinstance(read_by, TokenInput):
        return read_by.n_ctx
    return read_by.patches.n_special + read_by.patches.n_patches
