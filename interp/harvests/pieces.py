"""The texts of a harvest as token ids on disk, in pieces of half a million tokens.

Texts are read and tokenized once, so that memory does not depend on the size of the corpus, and any
process can then compute any shard. A piece holds whole texts:

    {stack}.token    int32  [token]      the ids of all texts, one after another
    {stack}.start    int64  [text + 1]   where each text begins, and where the last ends
    {stack}.type     int32  [token]      types of tokens, if the texts have any
    document         int64  [text]       the text as given, which was cut if it was too long
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from safetensors import safe_open
from torch import Tensor

from interp.errors import InvalidInput, reason
from interp.harvests.index import Index, Piece, piece_name
from interp.io import (
    CHECKSUM,
    DAMAGED,
    read_header,
    save_tensors,
    tensor_bytes,
    verify_checksum,
    write_whole,
)
from interp.model import PAD, Batch
from interp.prompts import Pool, no_texts, pools_of
from interp.transformer import TextNetwork

POOL = 256
"""Number of texts that are tokenized at a time."""
PIECE_TOKENS = 2**19
"""A piece ends after the pool of texts in which it reaches so many tokens."""
DOCUMENT = "document"


@dataclass
class Corpus:
    """The texts of a pass over a corpus, as token ids.

    Attributes:
        stacks: names of the stacks.
        n_texts: number of texts so far.
        n_documents: number of texts as given so far.
    """

    stacks: Sequence[str]
    n_texts: int = 0
    n_documents: int = 0
    _source: str | None = None
    _hashes: dict[str, Any] = field(default_factory=dict[str, Any])

    def read(
        self, model: TextNetwork, texts: object, max_length: int | None
    ) -> Iterator[tuple[Pool, dict[str, Tensor]]]:
        """Yield the texts in pools: the pool, and the tensors of a piece with its texts alone.

        Raises:
            InvalidInput: there are no texts, or a text can't be read.
        """
        for pool in pools_of(model, texts, POOL, max_length):
            tensors = self._tensors(pool)
            self._update(tensors)
            yield pool, tensors
        if not self.n_texts:
            raise no_texts()

    @property
    def digest(self) -> str:
        """SHA-256 of all texts so far, which does not depend on how they are divided."""
        return sha256("".join(h.hexdigest() for h in self._hashes.values()).encode()).hexdigest()

    def _tensors(self, pool: Pool) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for stack, batch in zip(self.stacks, pool.batches, strict=True):
            real = batch.is_real
            tensors[f"{stack}.token"] = batch.ids[real].int().cpu()
            tensors[f"{stack}.start"] = _starts(real.sum(-1).cpu())
            if batch.types is not None:
                tensors[f"{stack}.type"] = batch.types[real].int().cpu()
        documents: list[int] = []
        for source in pool.sources:
            self.n_documents += source != self._source
            self._source = source
            documents.append(self.n_documents - 1)
        self.n_texts += len(documents)
        return tensors | {DOCUMENT: torch.tensor(documents)}

    def _update(self, tensors: dict[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            if name not in self._hashes:
                self._hashes[name] = sha256(name.encode())
            content = tensor.diff() if name.endswith(".start") else tensor
            self._hashes[name].update(tensor_bytes(content))


def write_pieces(folder: Path, parts: Iterable[dict[str, Tensor]], stack: str) -> tuple[Piece, ...]:
    """Write the texts of a corpus, a file for half a million tokens.

    Raises:
        InvalidInput: as :meth:`Corpus.read`.
        OSError: a file can't be written.
    """
    written: list[Piece] = []
    waiting: list[dict[str, Tensor]] = []
    n_rows = 0
    for tensors in parts:
        waiting.append(tensors)
        n_rows += len(tensors[f"{stack}.token"])
        if n_rows >= PIECE_TOKENS:
            written.append(_write_piece(folder / piece_name(len(written)), waiting, stack))
            waiting, n_rows = [], 0
    if waiting:
        written.append(_write_piece(folder / piece_name(len(written)), waiting, stack))
    return tuple(written)


def _write_piece(path: Path, parts: Sequence[dict[str, Tensor]], stack: str) -> Piece:
    names = dict.fromkeys(name for part in parts for name in part)
    joined = {name: torch.cat([_part(part, name) for part in parts]) for name in names}
    for name in names:
        if name.endswith(".start"):
            joined[name] = _starts(torch.cat([part[name].diff() for part in parts]))
    write_whole(path, lambda new: save_tensors(joined, new, {}))
    checksum = read_header(path).metadata[CHECKSUM]
    return Piece(len(joined[DOCUMENT]), len(joined[f"{stack}.token"]), checksum)


def _part(part: dict[str, Tensor], name: str) -> Tensor:
    """A tensor of a pool; types are 0 in a pool that has none."""
    like = name.replace(".type", ".token")
    return part[name] if name in part else torch.zeros_like(part[like])


def _starts(lengths: Int[Tensor, " text"]) -> Int[Tensor, " start"]:
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


@dataclass(frozen=True, eq=False)
class TextsOfPiece:
    """Some consecutive texts.

    Attributes:
        batches: one batch per stack.
        first_text: index of the first text.
        first_rows: the row of each text's first token.
    """

    batches: tuple[Batch, ...]
    first_text: int
    first_rows: Int[Tensor, " text"]


class Pieces:
    """The token ids of a harvest, read from its folder.

    Args:
        folder: the folder.
        index: its index.
    """

    def __init__(self, folder: Path, index: Index) -> None:
        self.folder, self.index = folder, index
        self._last: tuple[int, dict[str, Tensor]] | None = None

    def tensors(self, piece: int) -> dict[str, Tensor]:
        """The tensors of a piece; the last one that was read stays in memory.

        Raises:
            InvalidInput: the file is missing, damaged, or of another harvest.
        """
        if self._last is not None and self._last[0] == piece:
            return self._last[1]
        path = self.folder / piece_name(piece)
        try:
            header = read_header(path)
            if header.metadata.get(CHECKSUM) != self.index.pieces[piece].sha256:
                raise ValueError("it is not the file that the index lists")
            verify_checksum(path, header)
            with safe_open(path, framework="pt") as file:
                tensors = {name: file.get_tensor(name).clone() for name in header.entries}
            self._check(tensors, self.index.pieces[piece])
        except DAMAGED as error:
            raise InvalidInput(
                f"{path} is missing or damaged: {reason(error)}. Restore it, or harvest into "
                "another folder."
            ) from error
        self._last = piece, tensors
        return tensors

    def _check(self, tensors: dict[str, Tensor], piece: Piece) -> None:
        """Check that texts are as many as the index has, and within the tokens."""
        stack = self.index.stack
        for name in (name.removesuffix(".start") for name in tensors if name.endswith(".start")):
            starts, n_tokens = tensors[f"{name}.start"], len(tensors.get(f"{name}.token", ()))
            ends = starts[:1].tolist(), starts[-1:].tolist()
            if len(starts) != piece.n_texts + 1 or ends != ([0], [n_tokens]):
                raise ValueError("its texts are not those that the index lists")
            if bool((starts.diff() < 1).any()):
                raise ValueError("one of its texts has no token")
        is_whole = len(tensors.get(DOCUMENT, ())) == piece.n_texts
        if not is_whole or len(tensors.get(f"{stack}.token", ())) != piece.n_rows:
            raise ValueError("its tokens are not those that the index lists")

    def starts(self, piece: int) -> Int[Tensor, " start"]:
        """The row at which each text of a piece begins, counted from the piece's first row."""
        return self.tensors(piece)[f"{self.index.stack}.start"]

    def overlapping(self, model: TextNetwork, rows: range) -> Iterator[TextsOfPiece]:
        """The texts that have tokens among some rows, piece by piece."""
        index = self.index
        for piece, first in enumerate(index.first_rows[:-1]):
            if first >= rows.stop or index.first_rows[piece + 1] <= rows.start:
                continue
            starts = self.starts(piece)
            begin = max(0, int(torch.searchsorted(starts, rows.start - first, right=True)) - 1)
            end = min(len(starts) - 1, int(torch.searchsorted(starts, rows.stop - first)))
            yield TextsOfPiece(
                self.batches(model, piece, range(begin, end)),
                index.first_texts[piece] + begin,
                starts[begin:end] + first,
            )

    def batches(self, model: TextNetwork, piece: int, texts: range) -> tuple[Batch, ...]:
        """Some texts of a piece, one batch per stack, padded on the right."""
        tensors = self.tensors(piece)
        batches: list[Batch] = []
        for stack in (stack.name for stack in model.stacks):
            starts = tensors[f"{stack}.start"][texts.start : texts.stop + 1]
            lengths = starts.diff()
            real = torch.arange(int(lengths.max())) < lengths[:, None]
            part = slice(int(starts[0]), int(starts[-1]))
            ids = torch.full(real.shape, PAD).masked_scatter(
                real, tensors[f"{stack}.token"][part].long()
            )
            types = tensors.get(f"{stack}.type")
            if types is not None:
                types = torch.zeros(real.shape, dtype=torch.long).masked_scatter(
                    real, types[part].long()
                )
            batches.append(model.batch(ids, types=types, stack=stack))
        return tuple(batches)
