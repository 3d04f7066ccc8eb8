"""Reading a harvest: shuffled batches for training, rows by index, texts.

    for batch in interp.Harvest(folder, batch=4096):
        x = batch["blocks.3.hook_resid_post"]        # [row d_model]

Shards are memory-mapped. Rows are gathered block by block: the row indices of several batches are
sorted, read in the order in which they stand on the disk, and handed out in the order of the
epoch. So the size of a block decides how many times an epoch passes over the files, never which
row comes when.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from interp.errors import InvalidInput, NotRecorded, shorten
from interp.harvests.index import (
    DTYPES,
    IDS,
    Index,
    StoredPlace,
    read_index,
    row_bytes,
)
from interp.harvests.order import Rows, order_of
from interp.harvests.pieces import DOCUMENT, Pieces
from interp.harvests.shards import check_shard, open_shard, present_shards
from interp.integers import as_seed, at_least, integer, within
from interp.io import as_path
from interp.model import Batch, weight_hash
from interp.points import Place, PlaceLike, Point
from interp.prompts import rows_of
from interp.transformer import TextNetwork

BLOCK_BYTES = 2**26
"""Bytes of the activations of a block, by default."""
STATE = ("epoch", "batch")
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers of so many bytes, as which NumPy, which has no bfloat16, copies activations."""
Numbers = NDArray[np.signedinteger]


class Harvest(IterableDataset[dict[str, Tensor]]):
    """The activations in a folder that :func:`interp.harvest` wrote.

    Iterating gives the batches of one epoch: dictionaries of the activations ``[row …]`` at each
    place, by its TransformerLens name, and of ``token``, ``text`` and ``position`` ``[row]``, the
    token id, the index of the text, and the position of the token in it. With a ``DataLoader``,
    give ``batch_size=None``; workers take batches in turn, so that the loader gives the batches in
    the same order with any number of them.

    Args:
        folder: the folder.
        places: the places to read; by default all.
        batch: number of rows of a batch.
        shuffle: whether the rows are read in random order (:mod:`interp.harvests.order`) or in that
            of the corpus.
        seed: seed of the order; by default that of the harvest.
        block: number of rows that are gathered at a time; by default, as many as take 64 MiB.
        rank: number of this process among ``ranks``, which read different batches. Each has the
            same number of them: up to ``ranks`` − 1 batches of an epoch are left out.
        ranks: number of processes.
        drop_last: whether to leave out the last batch, if it has fewer rows.

    Attributes:
        folder: the folder.
        index: the index: model, places, shapes, dtype, sizes.
        names: names of the places that are read.
        epoch: the number of the epoch, on which the order depends; see :meth:`set_epoch`.

    Raises:
        InvalidInput: there is no harvest, it is incomplete, a shard is damaged or of another
            harvest, or a setting is out of range.
        NotRecorded: a place is not stored.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> model, texts = interp.load("python-2l"), ["def f(x): return x", "class A: pass"]
        >>> with TemporaryDirectory() as folder:
        ...     harvest = interp.harvest(model, texts, ("resid_post", 1), folder)
        ...     [len(batch["token"]) for batch in interp.Harvest(folder, batch=8)]
        [8, 8, 1]
    """

    def __init__(  # noqa: PLR0913 - independent settings, by keyword
        self,
        folder: str | Path,
        *,
        places: Sequence[PlaceLike] | PlaceLike | None = None,
        batch: int = 4096,
        shuffle: bool = True,
        seed: int | None = None,
        block: int | None = None,
        rank: int = 0,
        ranks: int = 1,
        drop_last: bool = False,
    ) -> None:
        self.folder = as_path(folder)
        self.index: Index = read_index(self.folder)
        self._read_places = _chosen(self.index, places)
        self.names = tuple(place.name for place in self._read_places)
        self.batch, self.shuffle, self.drop_last = at_least(1, batch, "batch"), shuffle, drop_last
        self.seed = self.index.seed if seed is None else as_seed(seed)
        self.ranks = at_least(1, ranks, "ranks")
        self.rank = within(0, self.ranks - 1, rank, "rank")
        bytes_read = row_bytes(self._read_places, self.index.dtype)
        most = BLOCK_BYTES // bytes_read if block is None else at_least(1, block, "block")
        self._batches_of_block = max(1, most // self.batch)
        self.epoch = self._start = self._batches_read = 0
        self._order: tuple[int, Rows] | None = None
        self._pieces = Pieces(self.folder, self.index)
        self._shards: dict[int, dict[str, Numbers]] = {}
        self._check()

    def _check(self) -> None:
        index, folder = self.index, self.folder
        n_present = len(present_shards(index, folder))
        if n_present < index.n_shards:
            raise InvalidInput(
                f"{folder} has {n_present} of {index.n_shards} shards; the "
                "same call of interp.harvest computes the others."
            )
        for shard in range(index.n_shards):
            check_shard(folder, index, shard)

    @property
    def places(self) -> tuple[StoredPlace, ...]:
        """The places that are read: name, place and shape of a row."""
        return self._read_places

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.index.n_rows

    @property
    def n_texts(self) -> int:
        """Number of texts."""
        return self.index.n_texts

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the activations."""
        return DTYPES[self.index.dtype]

    def verify(self) -> None:
        """Read all files, and compare their SHA-256 with those that they were written with.

        Raises:
            InvalidInput: a file is damaged; the message names it.
        """
        for shard in range(self.index.n_shards):
            check_shard(self.folder, self.index, shard, checksum=True)
        for piece in range(len(self.index.pieces)):
            self._pieces.tensors(piece)

    # ---- rows and texts ------------------------------------------------------------------------

    def rows(self, rows: object) -> dict[str, Tensor]:
        """Some rows, in the order given; they are counted in the order of the corpus.

        Args:
            rows: indices ``[row]``: a list, an array, a tensor, a range or a slice; negative ones
                count from the end.

        Returns:
            As a batch.

        Raises:
            InvalidInput: an index is out of range, or is not an integer.
        """
        if isinstance(rows, slice):
            rows = range(*rows.indices(self.n_rows))
        try:
            indices = np.asarray(rows)
        except (TypeError, ValueError, RuntimeError):
            indices = np.empty(0)
        if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
            raise InvalidInput(f"rows={shorten(rows)} should be indices of rows.")
        indices = indices.astype(np.int64)
        outside = indices[(indices < -self.n_rows) | (indices >= self.n_rows)]
        if len(outside):
            raise InvalidInput(f"Row {outside[0]} is outside 0..{self.n_rows - 1}.")
        return next(self._in_blocks([indices % self.n_rows], {}))

    def rows_of_text(self, text: int) -> range:
        """The rows of a text, in the order of its tokens.

        Raises:
            InvalidInput: there is no such text.
        """
        piece, number = self._text(text)
        starts = self._pieces.starts(piece)
        first = self.index.first_rows[piece]
        return range(first + int(starts[number]), first + int(starts[number + 1]))

    def lengths(self) -> Int[Tensor, " text"]:
        """The number of rows of each text."""
        return torch.cat([self._pieces.starts(p).diff() for p in range(len(self.index.pieces))])

    def tokens(self, text: int, stack: str | None = None) -> Int[Tensor, " pos"]:
        """The token ids of a text.

        Args:
            text: index of the text.
            stack: for an encoder–decoder, the stack that reads them; by default that of the rows.

        Raises:
            InvalidInput: there is no such text, or no such stack.
        """
        piece, number = self._text(text)
        tensors, name = self._pieces.tensors(piece), stack or self.index.stack
        if f"{name}.token" not in tensors:
            raise InvalidInput(f"stack={shorten(stack)}: this harvest has {self.index.stack}.")
        start, end = tensors[f"{name}.start"][number : number + 2].tolist()
        return tensors[f"{name}.token"][start:end].long()

    def document(self, text: int) -> int:
        """The index of the text in the corpus; texts longer than the context were cut.

        Raises:
            InvalidInput: there is no such text.
        """
        piece, number = self._text(text)
        return int(self._pieces.tensors(piece)[DOCUMENT][number])

    def _text(self, text: object) -> tuple[int, int]:
        """The piece of a text, and its number in it."""
        number = integer(text, "text")
        if not -self.n_texts <= number < self.n_texts:
            raise InvalidInput(f"Text {number} is outside 0..{self.n_texts - 1}.")
        number %= self.n_texts
        piece = self.index.piece_of_text(number)
        return piece, number - self.index.first_texts[piece]

    def first_rows(self) -> Int[Tensor, " text"]:
        """The first row of each text."""
        lengths = self.lengths()
        return lengths.cumsum(0) - lengths

    def batches(self, model: TextNetwork) -> tuple[Batch, ...]:
        """All texts as the model reads them, padded on the right: one batch per stack.

        Raises:
            InvalidInput: the harvest is of another model.
        """
        self.check_model(model)
        pieces = enumerate(self.index.pieces)
        return rows_of([self._pieces.batches(model, n, range(p.n_texts)) for n, p in pieces])

    def texts(self, model: TextNetwork) -> Iterator[Any]:
        """The token ids of all texts, one after another, as passes over a corpus read them.

        Yields:
            A batch of one text; for an encoder–decoder, a pair of them.

        Raises:
            InvalidInput: the harvest is of another model.
        """
        self.check_model(model)
        for piece, content in enumerate(self.index.pieces):
            for text in range(content.n_texts):
                batches = self._pieces.batches(model, piece, range(text, text + 1))
                yield batches[0] if len(batches) == 1 else batches

    def check_model(self, model: TextNetwork) -> None:
        """Check that the activations are those of a model.

        Raises:
            InvalidInput: they are of another architecture or of other weights.
        """
        computation = self.index.computation
        for name, of_model in (("config", model.config.digest), ("weights", weight_hash(model))):
            of_harvest = getattr(computation, name)
            if of_harvest != of_model:
                raise InvalidInput(
                    f"{self.folder} has activations of {shorten(computation.model)}, whose {name} "
                    f"hash to {of_harvest[:8]}; those of this model hash to {of_model[:8]}. Load "
                    "that model, or harvest this one."
                )

    # ---- batches -------------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, on which the order depends; the next iteration gives all of it.

        Raises:
            InvalidInput: it is negative, or not an integer.
        """
        self.epoch, self._start, self._batches_read = at_least(0, epoch, "epoch"), 0, 0

    def state_dict(self) -> dict[str, int]:
        """Where this reader stands: the epoch, and the number of batches that were read of it.

        The workers of a ``DataLoader`` read from copies: count the batches that it gave, and load
        ``{"epoch": epoch, "batch": count}``, or use a loader that saves the states of its workers.
        """
        return {"epoch": self.epoch, "batch": self._batches_read}

    def load_state_dict(self, state: object) -> None:
        """Continue at a state of :meth:`state_dict`: the next iteration gives what is left.

        Call :meth:`set_epoch` before the iteration after that.

        Raises:
            InvalidInput: it is no such state.
        """
        if not isinstance(state, dict) or set(state) != set(STATE):
            raise InvalidInput(f"{shorten(state)} is not what state_dict() returns.")
        batch = within(0, len(self), state["batch"], "batch")
        self.set_epoch(state["epoch"])
        self._start = self._batches_read = batch

    def __len__(self) -> int:
        """Number of batches of an epoch that this rank reads."""
        n = self.n_rows // self.batch if self.drop_last else -(-self.n_rows // self.batch)
        return n // self.ranks

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        """The batches of the epoch, from a loaded state on; in a worker, its share of them."""
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        self._batches_read, self._start = self._start, 0
        return self._batches(first, step)

    def _batches(self, first: int, step: int) -> Iterator[dict[str, Tensor]]:
        buffers: dict[str, Numbers] = {}
        while numbers := range(self._batches_read + first, len(self), step):
            numbers = numbers[: self._batches_of_block]
            rows = [self._rows_of_batch(number) for number in numbers]
            for batch in self._in_blocks(rows, buffers):
                self._batches_read += step
                yield batch

    def _rows_of_batch(self, number: int) -> Rows:
        """The rows of a batch of this rank."""
        start = (number * self.ranks + self.rank) * self.batch
        end = min(start + self.batch, self.n_rows)
        if not self.shuffle:
            return np.arange(start, end)
        if self._order is None or self._order[0] != self.epoch:
            self._order = self.epoch, order_of(self.n_rows, self.seed, self.epoch)
        return self._order[1][start:end]

    def _in_blocks(
        self, batches: Sequence[Rows], buffers: dict[str, Numbers]
    ) -> Iterator[dict[str, Tensor]]:
        """The rows of some batches, gathered at once in the order of the files.

        Args:
            batches: the rows of each batch.
            buffers: memory for the rows of a block, which is used again for the next.
        """
        rows = np.concatenate(batches).astype(np.int64)
        if (rows[1:] >= rows[:-1]).all():
            for batch in batches:
                yield self._tensors(self._gather(batch.astype(np.int64), {}))
            return
        order = np.argsort(rows)
        gathered = self._gather(rows[order], buffers)
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        for places in np.split(inverse, np.cumsum([len(batch) for batch in batches[:-1]])):
            yield self._tensors({name: x.take(places, axis=0) for name, x in gathered.items()})

    def _gather(self, rows: Rows, buffers: dict[str, Numbers]) -> dict[str, Numbers]:
        """Rows in ascending order, shard by shard."""
        firsts = np.arange(self.index.n_shards + 1) * self.index.shard_rows
        ends = np.searchsorted(rows, firsts).tolist()
        for shard, (start, end) in enumerate(pairwise(ends)):
            if start == end:
                continue
            arrays, at = self._shard(shard), rows[start:end] - firsts[shard]
            for name in (*self.names, *IDS):
                array = arrays[name]
                if name not in buffers or len(buffers[name]) < len(rows):
                    buffers[name] = np.empty((len(rows), array.shape[1]), array.dtype)
                # NumPy copies in this thread: with threads of PyTorch, blocks of a few rows would
                # mostly wait for one another.
                array.take(at, axis=0, out=buffers[name][start:end], mode="clip")
        return {name: array[: len(rows)] for name, array in buffers.items()}

    def _tensors(self, arrays: dict[str, Numbers]) -> dict[str, Tensor]:
        """Gathered rows in their dtypes and shapes."""
        shapes = {place.name: (self.dtype, place.shape) for place in self.places}
        shapes |= {name: (dtype, ()) for name, dtype in IDS.items()}
        return {
            name: torch.from_numpy(arrays[name]).view(dtype).reshape(-1, *shape)
            for name, (dtype, shape) in shapes.items()
        }

    def _shard(self, shard: int) -> dict[str, Numbers]:
        """The rows of a shard as integers of the same size, ``[row number]``, memory-mapped."""
        if shard not in self._shards:
            tensors = open_shard(self.folder, self.index, shard)
            self._shards[shard] = {
                name: x.view(INTEGERS[x.itemsize]).reshape(len(x), -1).numpy()
                for name, x in tensors.items()
                if name in (*self.names, *IDS)
            }
        return self._shards[shard]

    def __getstate__(self) -> dict[str, Any]:
        """The state without what is read from the files and drawn by the seed."""
        pieces = Pieces(self.folder, self.index)
        return {**self.__dict__, "_shards": {}, "_order": None, "_pieces": pieces}

    def __repr__(self) -> str:
        """Sizes, dtype and places."""
        places = ", ".join(f"{p.name} [{' '.join(map(str, p.shape))}]" for p in self._read_places)
        return f"Harvest({self.n_rows} rows of {self.n_texts} texts, {self.index.dtype}: {places})"


def _chosen(
    index: Index, places: Sequence[PlaceLike] | PlaceLike | None
) -> tuple[StoredPlace, ...]:
    """The stored places that are asked for.

    Raises:
        InvalidInput: the list is empty.
        NotRecorded: one is not stored.
    """
    if isinstance(places, list) and not places:
        raise InvalidInput("places=[] names no place; leave it out to read all that are stored.")
    if places is None:
        return index.places
    several: Sequence[Any] = places if isinstance(places, list) else [places]
    chosen: dict[str, StoredPlace] = {}
    for name in several:
        matches = [place for place in index.places if _is_named(place, name)]
        if not matches:
            stored = ", ".join(place.name for place in index.places)
            raise NotRecorded(f"{shorten(name)} is not stored; this harvest has {stored}.")
        chosen |= {place.name: place for place in matches}
    return tuple(chosen.values())


def _is_named(stored: StoredPlace, name: object) -> bool:
    """Whether a name is that of a place: a hook name, a point, or a point with layer and norm."""
    if isinstance(name, Place):
        return name == stored.as_place
    parts = name if isinstance(name, tuple) else (name,)
    labels = [part.label if isinstance(part, Point) else part for part in parts]
    return name == stored.name or (labels[:1] == stored.place[:1] and {*labels} <= {*stored.place})
