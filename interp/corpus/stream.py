"""The largest values of a measure over a corpus, and how all of them are distributed.

Texts are run in batches and forgotten, but for those with the largest values so far. What is found
does not depend on the size of the batches, nor on padding.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.corpus.distribution import Distribution
from interp.corpus.measures import Measure
from interp.corpus.texts import Pool, pools_of
from interp.corpus.top_cells import TopCells
from interp.errors import InvalidInput, shorten
from interp.execution.run import run
from interp.model.batch import Batch, TokenInput
from interp.model.stack import Stack
from interp.text_network import TextNetwork

Text = tuple[Batch, ...]
"""One text, as a row of each stack."""
Progress = Callable[[int, int], None]
POOL = 1024
"""Texts of a stream that are in memory at a time; batches are of about one length among these."""


@dataclass(frozen=True)
class Settings:
    """How a corpus is read.

    Attributes:
        top: cells to keep of each unit.
        rows: texts a forward.
        lowest: whether the least values are sought, and not the largest.
        bos: whether cells at BOS (of attention, with it as key) count.
        sample: how many of the first texts to keep.
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
    """What was found in a corpus.

    Attributes:
        value: the largest values of each unit, the largest first.
        text: the number of their text in the corpus, from 0.
        pos: their position among its tokens; of attention, that of the query.
        key: of attention, the position of the key; else 0.
        texts: the texts that have them, by number.
        sources: where these were read.
        distribution: of all values.
        sample: the first texts.
        n_texts: number of texts, and of parts of longer ones.
        n_tokens: their number, in the stack whose tokens have values.
        n_cut: parts of texts longer than the context that begin within their text.
        sha256: of all texts.
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
        """What a reader should know of how the corpus was read."""
        cut = f"texts longer than the context were cut, {self.n_cut} times"
        part = f"cancelled after {self.n_texts} texts"
        return (*([cut] if self.n_cut else []), *([] if self.complete else [part]))


def stream_corpus(
    model: TextNetwork,
    texts: Any,  # noqa: ANN401 - what pools_of reads
    measure: Measure,
    settings: Settings,
    *,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Streamed:
    """Measure every text of a corpus.

    Args:
        model: the model.
        texts: see :func:`interp.corpus.texts.pools_of`.
        measure: what is measured.
        settings: how it is read.
        progress: called after each batch with what was read and how much there is: bytes of a file,
            else texts (of an iterator, what was read so far, twice).
        cancelled: called after each batch; if it returns True, what was found so far is returned.

    Raises:
        InvalidInput: the corpus holds no text, or no value to measure; or a text can't be read.
    """
    found = _Found(measure, settings)
    read = 0
    for pool in pools_of(model, texts, POOL):
        found.add_pool(pool)
        done = 0
        for numbers, batches in pool.split(settings.rows):
            found.add(pool, numbers, batches)
            done += len(numbers)
            if progress is not None:
                progress(read + (pool.done - read) * done // len(pool.sources), pool.total)
            if cancelled is not None and cancelled():
                return found.result(complete=False)
        read = pool.done
    return found.result(complete=True)


def values_of(measure: Measure, texts: Text) -> Float[Tensor, "unit row pos key"]:
    """The values of some texts, those that do not count too."""
    stop = measure.stop_at_layer
    done = run(measure.model, *texts, record=measure.place, stop_at_layer=stop)
    return measure.values(done.cache)


class _Found:
    """What was found so far."""

    def __init__(self, measure: Measure, settings: Settings) -> None:
        self.measure, self.settings = measure, settings
        model = measure.model
        self.n_pos = _longest(model.stacks[measure.stack])
        key_stack = measure.key_stack
        self.n_key = 1 if key_stack is None else _longest(model.stacks[key_stack])
        self.distribution = Distribution(measure.units, model.device)
        self.top = TopCells(measure.units, settings.top, model.device)
        self.texts: dict[int, Text] = {}
        self.sources: dict[int, str] = {}
        self.sample: dict[int, Text] = {}
        self.running = hashlib.sha256()
        self.n_texts = self.n_tokens = self.n_cut = 0

    def add_pool(self, pool: Pool) -> None:
        """Note what is known of texts before they are run."""
        self.n_cut += pool.n_cut
        pool.digest(self.running)

    @torch.no_grad()
    def add(self, pool: Pool, numbers: Int[Tensor, " row"], batches: Text) -> None:
        """Measure some texts of a pool, whose numbers ascend."""
        counted = self.measure.counted(batches)
        if not self.settings.bos:
            counted = counted & ~self.measure.at_bos(batches)
        values = values_of(self.measure, batches)[:, counted]
        row, pos, key = counted.nonzero().unbind(-1)
        text = numbers.to(row.device)[row]
        self.distribution.add(values)
        sign = -1 if self.settings.lowest else 1
        self.top.add(sign * values, (text * self.n_pos + pos) * self.n_key + key)
        self.n_texts += len(numbers)
        self.n_tokens += int(batches[self.measure.stack].is_real.sum())
        self._keep(pool, numbers, batches)

    def _keep(self, pool: Pool, numbers: Int[Tensor, " row"], batches: Text) -> None:
        """Keep the texts that are among the largest or in the sample, and forget all others."""
        wanted = set((self.top.cell // (self.n_pos * self.n_key)).unique().tolist())
        self.texts = {n: text for n, text in self.texts.items() if n in wanted}
        self.sources = {n: self.sources[n] for n in self.texts}
        for row, number in enumerate(numbers.tolist()):
            if number in wanted or number < self.settings.sample:
                own = torch.tensor([row], device=batches[0].ids.device)
                text = tuple(batch.rows(own).padded_right() for batch in batches)
                if number in wanted:
                    self.texts[number] = text
                    self.sources[number] = pool.sources[number - pool.first]
                if number < self.settings.sample:
                    self.sample[number] = text

    def result(self, *, complete: bool) -> Streamed:
        """What was found."""
        if not self.n_texts:
            raise InvalidInput(
                "The corpus holds no text: give a file with one text a line, texts, or token ids."
            )
        if not self.distribution.n:
            raise InvalidInput(
                f"{self.measure.name} has no value in this corpus: its {self.n_texts} texts have a "
                "single token each, or none beside BOS. Give longer ones."
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
    """The most tokens of a text."""
    read_by = stack.input
    if isinstance(read_by, TokenInput):
        return read_by.n_ctx
    return read_by.patches.n_special + read_by.patches.n_patches
