"""The index of a harvest: everything that the bytes of its shards depend on.

``index.json`` is written once, before the first shard, and never changes. A shard is computed from
the index, the texts and the model alone, so that any process may compute any shard. The SHA-256 of
the index stands in the header of each shard.
"""

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from itertools import accumulate
from math import prod
from pathlib import Path

import torch

from interp.errors import InvalidInput, reason, shorten
from interp.io import (
    UNREADABLE,
    VERSION,
    build,
    is_file,
    read_json,
    without_version,
    write_text_whole,
)
from interp.points import Place

INDEX, NEWEST = "index.json", 1
MAX_BYTES = 2**28
"""Maximum size of an index, which has 300 bytes for each million tokens."""
DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}
"""The dtypes that activations are stored in, by name."""
IDS = {"token": torch.int32, "text": torch.int64, "position": torch.int32}
"""The integers beside each row, and their dtypes."""


@dataclass(frozen=True)
class StoredPlace:
    """A place whose activations are stored.

    Attributes:
        name: name of its tensor in the shards: the TransformerLens name of the place.
        place: ``[label, layer, norm, stack]``, as :meth:`interp.Place.to_json` gives it.
        shape: shape of a row, such as ``(768,)``, or ``(12, 64)`` for heads.
    """

    name: str
    place: list[str | int | None]
    shape: tuple[int, ...]

    @property
    def as_place(self) -> Place:
        """The place."""
        return Place.from_json(self.place)


@dataclass(frozen=True)
class Piece:
    """A file with the token ids of consecutive texts.

    Attributes:
        n_texts: number of texts.
        n_rows: number of their tokens.
        sha256: the checksum in its header.
    """

    n_texts: int
    n_rows: int
    sha256: str


@dataclass(frozen=True)
class Computation:
    """What the activations are computed with; a harvest is continued with the same only.

    Attributes:
        model: name of the model.
        config: SHA-256 of its configuration.
        weights: SHA-256 of its weights.
        dtype: dtype of its weights.
        device: type of its device: ``cpu`` or ``cuda``.
        products: kernel of products with weights.
        precision: rounding of float32 products.
        torch: version of PyTorch.
    """

    model: str
    config: str
    weights: str
    dtype: str
    device: str
    products: str
    precision: str
    torch: str


@dataclass(frozen=True)
class Index:
    """The index of a harvest.

    Attributes:
        computation: what the activations are computed with.
        places: the places, in the order of the forward.
        dtype: the dtype in which activations are stored.
        stack: the stack whose tokens are the rows.
        shard_rows: number of rows of each shard but the last.
        forward_texts: maximum number of texts of a forward.
        forward_tokens: maximum number of tokens of a forward, padding included, or one text.
        seed: seed of the order in which rows are read.
        texts: SHA-256 of the token ids of all texts.
        n_documents: number of texts as they were given; longer ones than the context are cut.
        pieces: the files with token ids.
    """

    computation: Computation
    places: tuple[StoredPlace, ...]
    dtype: str
    stack: str
    shard_rows: int
    forward_texts: int
    forward_tokens: int
    seed: int
    texts: str
    n_documents: int
    pieces: tuple[Piece, ...]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the index, by which a shard refers to it."""
        return sha256(self.to_text().encode()).hexdigest()

    @cached_property
    def n_texts(self) -> int:
        """Number of texts, each at most as long as the context."""
        return sum(piece.n_texts for piece in self.pieces)

    @cached_property
    def n_rows(self) -> int:
        """Number of rows: a row for each token."""
        return sum(piece.n_rows for piece in self.pieces)

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return -(-self.n_rows // self.shard_rows)

    @property
    def row_bytes(self) -> int:
        """Bytes of the activations of a row at all places."""
        return row_bytes(self.places, self.dtype)

    @property
    def ids_bytes(self) -> int:
        """Bytes of the integers beside a row."""
        return sum(dtype.itemsize for dtype in IDS.values())

    def rows_of(self, shard: int) -> range:
        """The rows of a shard."""
        first = shard * self.shard_rows
        return range(first, min(first + self.shard_rows, self.n_rows))

    @cached_property
    def first_rows(self) -> list[int]:
        """The first row of each piece, and the number of rows."""
        return [0, *accumulate(piece.n_rows for piece in self.pieces)]

    @cached_property
    def first_texts(self) -> list[int]:
        """The first text of each piece, and the number of texts."""
        return [0, *accumulate(piece.n_texts for piece in self.pieces)]

    def piece_of_text(self, text: int) -> int:
        """The piece that a text is in."""
        return bisect_right(self.first_texts, text) - 1

    def to_text(self) -> str:
        """The index as JSON; :func:`read_index` reads it."""
        return json.dumps({VERSION: NEWEST, **asdict(self)}, indent=1) + "\n"

    def write(self, folder: Path) -> None:
        """Write it atomically.

        Raises:
            OSError: it can't be written.
        """
        write_text_whole(folder / INDEX, self.to_text())


def row_bytes(places: Sequence[StoredPlace], dtype: str) -> int:
    """Bytes of the activations of a row at some places."""
    return sum(prod(place.shape) for place in places) * DTYPES[dtype].itemsize


def shard_name(shard: int) -> str:
    """The file of a shard."""
    return f"shard-{shard:05}.safetensors"


def piece_name(piece: int) -> str:
    """The file of the token ids of some texts."""
    return f"texts-{piece:05}.safetensors"


def read_index(folder: Path) -> Index:
    """The index of a folder.

    Raises:
        InvalidInput: there is none, or it is damaged or of a later version.
    """
    path = folder / INDEX
    if not is_file(path):
        raise InvalidInput(
            f"{folder} has no {INDEX}, so it is not a folder that interp.harvest wrote."
        )
    try:
        index = build(Index, without_version(read_json(path, MAX_BYTES), NEWEST, INDEX), INDEX)
        _check_values(index)
    except UNREADABLE as error:
        raise InvalidInput(f"{path} is damaged: {reason(error)}.") from error
    return index


def _check_values(index: Index) -> None:
    """Check values that other parts of the index, or arithmetic with them, depend on.

    Raises:
        ValueError: one is out of range.
    """
    numbers = [index.shard_rows, index.forward_texts, index.forward_tokens, index.n_documents]
    for piece in index.pieces:
        numbers += [piece.n_texts, piece.n_rows]
    for place in index.places:
        numbers += place.shape
        _ = place.as_place
    names = {place.name for place in index.places}
    if not all(0 < number < 2**40 for number in numbers):
        raise ValueError("a number is below 1 or absurdly large")
    if index.dtype not in DTYPES:
        raise ValueError(f"it has the dtype {shorten(index.dtype)}")
    if not index.pieces or not names or len(names) < len(index.places) or names & {*IDS}:
        raise ValueError("it has no texts or no places, or two of one name")
