"""The texts of a corpus in batches of similar length, with a bounded number in memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.errors import InvalidInput, InvalidTokens, shorten
from interp.execution import with_start
from interp.io import Progress, is_file
from interp.model import PAD, Batch, TokenInput, is_text
from interp.prompts.prompt import with_texts
from interp.prompts.records import READERS, records_of
from interp.prompts.saved_dataset import is_dataset
from interp.transformer import TextNetwork

SUFFIXES = (".txt", *READERS)
CELLS = 2**22
"""The most attention weights of a head over all texts of a batch, which may be one text alone."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Consecutive texts of a corpus.

    Attributes:
        batches: one batch per stack, with one row per text.
        first: index of the first text in the corpus, from 0.
        sources: where each text was read: ``file:line``, or ``text 3``.
        n_cut: number of rows that begin within a text, which was longer than the context.
        done: amount of the corpus read so far, these texts included: in bytes for a file,
            otherwise in texts.
        total: size of the corpus; for an iterator, the same as ``done``.
    """

    batches: tuple[Batch, ...]
    first: int
    sources: tuple[str, ...]
    n_cut: int
    done: int
    total: int

    def split(self, rows: int) -> Iterator[tuple[Int[Tensor, " row"], tuple[Batch, ...]]]:
        """Indices and batches of up to ``rows`` texts, fewer of long ones; the shortest first."""
        for part, texts in by_length(self.batches, rows, CELLS):
            yield part.cpu() + self.first, texts

    def names(self, rows: Int[Tensor, " row"]) -> str:
        """Where some of its texts were read, for messages."""
        first, *others = rows.tolist()
        more = f" and {len(others)} more texts" if others else ""
        return f"{self.sources[first]}{more}"

    def progress(self, report: Progress | None, before: int) -> Progress | None:
        """Progress over its rows as progress over the corpus, of which ``before`` was read."""
        if report is None:
            return None
        amount = self.done - before
        return lambda done, rows: report(before + amount * done // rows, self.total)

    def digest(self, running: Any) -> None:  # noqa: ANN401 - a hash of hashlib
        """Add each text to a hash, independently of padding."""
        rows = zip(*(_without_padding(batch) for batch in self.batches), strict=True)
        running.update("".join(f"{row} " for row in rows).encode())


def by_length(
    batches: Sequence[Batch], rows: int, cells: int, tokens: int | None = None
) -> Iterator[tuple[Int[Tensor, " row"], tuple[Batch, ...]]]:
    """Indices and batches of prompts of similar length, without padding that none of them needs.

    Args:
        batches: a batch per stack, with a row per prompt.
        rows: maximum number of prompts in a batch.
        cells: maximum number of attention weights of a head over all prompts of a batch, which may
            be one prompt alone.
        tokens: maximum number of tokens over all prompts of a batch, likewise; by default any.

    Yields:
        The shortest prompts first; the indices of a batch are in order.
    """
    lengths = torch.stack([batch.is_real.sum(-1) for batch in batches]).sum(0).clamp(min=1)
    for part in lengths.argsort(stable=True).split(rows):
        longest = int(lengths[part[-1]])
        most = cells // longest**2
        if tokens is not None:
            most = min(most, tokens // longest)
        for few in part.split(max(1, most)):
            chosen = few.sort().values
            yield chosen, tuple(batch.rows(chosen).padded_right() for batch in batches)


def _without_padding(batch: Batch) -> Iterator[list[Any]]:
    """The token ids, the token types and the image of each row, without padding."""
    for row, real in enumerate(batch.is_real):
        tensors = (batch.ids, batch.types)
        ids: list[Any] = [None if x is None else x[row][real].tolist() for x in tensors]
        yield [*ids, None if batch.images is None else batch.images[row].tolist()]


@dataclass(frozen=True)
class _Item:
    """One text of a corpus as given, and how far the corpus was read with it.

    The attributes are those of :class:`Pool`.
    """

    content: object
    source: str
    done: int
    total: int


_Row = tuple[_Item, tuple[Batch, ...]]
"""A text, or a part of it, as a checked row of each stack."""


def pools_of(
    model: TextNetwork,
    texts: Any,  # noqa: ANN401 - what model.check reads, a path or an iterator
    size: int,
    max_length: int | None = None,
) -> Iterator[Pool]:
    """Yield the texts of a corpus in their order, ``size`` at a time.

    A text longer than ``max_length`` or the context is cut into several parts. If the text begins
    with BOS, so does each of its parts.

    Args:
        model: the model that reads the texts.
        texts: the path of a file (see :mod:`interp.prompts.records`), or a dataset of the library
            `datasets`; an iterator of texts or of rows of token ids (for an encoder–decoder, of
            pairs); or what ``model.batch`` reads: texts, token ids padded with ``PAD``, images, or
            a batch; for an encoder–decoder, ``(source, target)``.
        size: number of texts in a pool, if they are read one by one.
        max_length: maximum number of tokens of a text; by default that of the context. Token ids
            are not cut.

    Raises:
        InvalidInput: a text that the model can't read, or a malformed line; the message names it.
    """
    if isinstance(texts, str) and texts.endswith(SUFFIXES) and is_file(Path(texts)):
        raise InvalidInput(
            f"The string {shorten(texts)} would be read as a text; give the file as "
            f"Path({texts!r})."
        )
    items = _items(model, texts)
    if items is None:
        batches = tuple(model.batches(texts))
        n = len(batches[0].ids)
        yield Pool(batches, 0, tuple(f"text {row}" for row in range(n)), 0, n, n)
        return
    first, rows = 0, list[_Row]()
    for item in items:
        rows += [(item, batches) for batches in _rows(model, item, max_length)]
        if len(rows) >= size:
            yield _pool(rows, first)
            first, rows = first + len(rows), []
    if rows:
        yield _pool(rows, first)


def read_batches(
    model: TextNetwork,
    prompts: Any,  # noqa: ANN401 - what model.check reads, a path or an iterator
) -> list[Batch]:
    """All prompts that an analysis is given, one batch per stack; their token ids are in memory.

    Args:
        model: the model that reads the prompts.
        prompts: the path of a file, a dataset or an iterator, as for :func:`pools_of`, of which no
            prompt is cut; or what ``model.batches`` reads.

    Raises:
        InvalidInput: a prompt that the model can't read, or a malformed line; the message names it.
    """
    if not (isinstance(prompts, Iterator | Path) or is_dataset(prompts)):
        return model.batches(prompts)
    items = _items(model, prompts) or iter(())
    rows = [_checked(model, item, [item.content])[0] for item in items]
    if not rows:
        raise no_texts()
    return [*rows_of(rows)]


def batches_to_continue(
    model: TextNetwork,
    prompts: Any,  # noqa: ANN401 - as of read_batches
) -> list[Batch]:
    """Prompts whose texts the model continues, one batch per stack.

    Args:
        model: the model that reads the prompts.
        prompts: as for :func:`read_batches`; of an encoder–decoder, sources, or sources and the
            beginnings of targets. Without beginnings, targets have their start token alone.

    Raises:
        InvalidInput: as of :func:`read_batches`.
    """
    if len(model.stacks) == 1:
        return read_batches(model, prompts)
    by_stack = prompts if isinstance(prompts, tuple) else (prompts,)
    return model.check(*with_start(model, by_stack))


def no_texts() -> InvalidInput:
    """The error for a corpus from which :func:`pools_of` yields nothing."""
    return InvalidInput(
        "The corpus holds no text: give a file with one text per line, texts, or token ids."
    )


def joined(batches: Sequence[Batch]) -> Batch:
    """The rows of several batches as one batch, padded on the right."""
    if len(batches) == 1:
        return batches[0]
    width = max(batch.ids.shape[1] for batch in batches)

    def padded(parts: Sequence[Tensor], fill: int) -> Tensor:
        return torch.cat([F.pad(x, (0, width - x.shape[1]), value=fill) for x in parts])

    tokens = padded([batch.tokens for batch in batches], PAD)
    real = tokens != PAD
    types = masked = images = None
    if any(batch.types is not None for batch in batches):
        types = padded([batch.types_from(0) for batch in batches], 0)
    if batches[0].masked is not None:
        masked = padded([x.int() for x in (b.masked for b in batches) if x is not None], 0).bool()
    if batches[0].images is not None:
        images = torch.cat([x for x in (batch.images for batch in batches) if x is not None])
    whole = None if bool(real.all()) else real
    return Batch(tokens.where(real, 0), whole, types, images, masked)


def rows_of(texts: Sequence[tuple[Batch, ...]]) -> tuple[Batch, ...]:
    """Texts of one row each as batches, one per stack."""
    return tuple(joined(same_stack) for same_stack in zip(*texts, strict=True))


def _items(model: TextNetwork, texts: Any) -> Iterator[_Item] | None:  # noqa: ANN401
    """The texts one by one; ``None`` if they are given as arrays."""
    if isinstance(texts, Path) or is_dataset(texts):
        return _records(model, texts)
    if is_text(texts) and len(model.stacks) == 1:
        several = [texts] if isinstance(texts, str) else texts
        n = len(several)
        return (_Item(each, f"text {i}", i + 1, n) for i, each in enumerate(several))
    if isinstance(texts, Iterator):
        return (_Item(each, f"text {i}", i + 1, i + 1) for i, each in enumerate(texts))
    return None


def _records(model: TextNetwork, source: object) -> Iterator[_Item]:
    """The texts of a file; for an encoder–decoder, pairs of ``text`` and ``target``."""
    paired = len(model.stacks) > 1
    for record in records_of(source):
        values = record.values
        if isinstance(values, dict) and "text" not in values:
            values = with_texts(values, model.chat, record.source)
        text = values.get("text") if isinstance(values, dict) else None
        if not isinstance(text, str) or not text:
            raise InvalidInput(
                f'{record.source}: expected an object with a "text", got {shorten(values)}.'
            )
        target = values.get("target")
        if paired and not isinstance(target, str):
            raise InvalidInput(
                f'{record.source}: an encoder–decoder needs a "target" in every line.'
            )
        yield _Item((text, target) if paired else text, record.source, record.done, record.total)


def _rows(model: TextNetwork, item: _Item, max_length: int | None) -> list[tuple[Batch, ...]]:
    """A text as checked batches of one row: several if the text is too long."""
    if len(model.stacks) > 1:
        return _checked(model, item, [item.content])
    try:
        windows = _windows(model, item.content, max_length)
    except InvalidInput as error:
        raise InvalidTokens(f"{item.source}: {error}") from error
    return _checked(model, item, windows)


def _checked(model: TextNetwork, item: _Item, windows: Sequence[Any]) -> list[tuple[Batch, ...]]:
    """Parts of a text as checked batches of one row."""
    try:
        checked = [tuple(model.batches(each)) for each in windows]
    except InvalidInput as error:
        raise InvalidTokens(f"{item.source}: {error}") from error
    if any(len(batch.ids) != 1 for batches in checked for batch in batches):
        raise InvalidTokens(f"{item.source}: expected one text, got {shorten(item.content)}.")
    return checked


def _windows(model: TextNetwork, content: object, max_length: int | None) -> list[Any]:
    """A text, or its token ids in parts if it is longer than the context or ``max_length``."""
    read_by = model.stacks[0].input
    if not isinstance(content, str) or not isinstance(read_by, TokenInput):
        return [content]
    ids = model.to_tokens(content)[0]
    longest = read_by.n_ctx if max_length is None else min(max_length, read_by.n_ctx)
    if len(ids) <= longest:
        return [ids]
    head = ids[: int(ids[0]) == model.config.tokens.bos]
    parts = ids[len(head) :].split(max(1, longest - len(head)))
    return [torch.cat([head, part]) for part in parts]


def _pool(rows: Sequence[_Row], first: int) -> Pool:
    items = [item for item, _ in rows]
    batches = rows_of([text for _, text in rows])
    n_cut, last = len(items) - len(set(map(id, items))), items[-1]
    return Pool(batches, first, tuple(i.source for i in items), n_cut, last.done, last.total)
