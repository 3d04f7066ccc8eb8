"""The positions of the logits that a function reads, found by tracking how it indexes them.

A function of ``[batch pos vocab]`` that reads a single position of each row needs only the logits
at these positions. It is given a tensor that looks like all logits and refuses every other use, so
that a value that was not computed is never read.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.metrics import AtPosition
from interp.model import Batch

GETTERS = ("shape", "dtype", "device", "ndim", "requires_grad", "is_cuda", "layout")
ABOUT_IT = {
    Tensor.size,
    Tensor.dim,
    Tensor.__len__,
    *(getattr(Tensor, name).__get__ for name in GETTERS),
}
"""Functions that do not read values."""
OVER_VOCAB = {
    *(Tensor.softmax, torch.softmax, F.softmax),
    *(Tensor.log_softmax, torch.log_softmax, F.log_softmax),
}
"""Functions along one axis; along that of the vocabulary, they treat positions independently."""
ELEMENTWISE = {Tensor.float, Tensor.double, Tensor.detach, Tensor.clone, Tensor.cpu, Tensor.to}


class ReadsMore(Exception):
    """The function does not read the logits at one position of each row only."""


@dataclass(eq=False)
class Reads:
    """The cells that a function has read.

    Attributes:
        cells: the cells read so far, each as ``row * n_pos + pos``.
        allowed: the cells that may be read; ``None`` for any.
        refused: whether the function tried another use.
    """

    cells: set[int] = field(default_factory=set)
    allowed: frozenset[int] | None = None
    refused: bool = False

    def refuse(self, what: object) -> ReadsMore:
        """Record a refused use (the function may catch the error), and return the error."""
        self.refused = True
        return ReadsMore(str(what))

    def add(self, cells: Tensor) -> None:
        """Record cells that are read.

        Raises:
            ReadsMore: some of them are not allowed.
        """
        read = set(cells.flatten().tolist())
        self.cells |= read
        if self.allowed is not None and not read <= self.allowed:
            raise self.refuse(f"cells {sorted(read)}")


class WatchedLogits(Tensor):
    """Logits whose uses are recorded.

    Attributes:
        reads: the record.
        cells: ``row * n_pos + pos`` of each vector of logits: a tensor without the last axis.
    """

    reads: Reads
    cells: Tensor

    @classmethod
    def of(cls, logits: Tensor, reads: Reads, cells: Tensor | None = None) -> "WatchedLogits":
        """Watch logits, by default of shape ``[batch pos vocab]``."""
        watched = logits.detach().as_subclass(cls)
        n, n_pos = logits.shape[:2]
        cell_numbers = torch.arange(n * n_pos).view(n, n_pos) if cells is None else cells
        cell_numbers = cell_numbers.to(logits.device)
        watched.reads, watched.cells = reads, cell_numbers
        return watched

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Index positions, return properties, or apply a function to each position.

        Raises:
            ReadsMore: any other use.
        """
        keywords = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
            if func in ABOUT_IT:
                return func(*args, **keywords)
            first = args[0] if args else None
            watched = first if isinstance(first, WatchedLogits) else None
            if watched is None:
                watched = next(
                    (argument for argument in _flat(args, keywords) if isinstance(argument, cls)),
                    None,
                )
                raise ReadsMore(str(func)) if watched is None else watched.reads.refuse(func)
            if func is Tensor.__getitem__:
                return _indexed(watched, args[1])
            over_vocab = func in OVER_VOCAB and _axis(args, keywords) in (-1, watched.ndim - 1)
            if over_vocab or func in ELEMENTWISE:
                return _apply_to_each(watched, lambda x: func(x, *args[1:], **keywords))
            raise watched.reads.refuse(func)


def _flat(args: tuple[Any, ...], keywords: dict[str, Any]) -> list[Any]:
    flat: list[Any] = []
    for argument in (*args, *keywords.values()):
        flat += list(argument) if isinstance(argument, list | tuple) else [argument]
    return flat


def _axis(args: tuple[Any, ...], keywords: dict[str, Any]) -> object:
    return args[1] if len(args) > 1 else keywords.get("dim")


def _apply_to_each(watched: WatchedLogits, fn: Callable[[Tensor], Tensor]) -> WatchedLogits:
    """Apply a function to each vector of logits, once if all positions share their data."""
    plain = watched.as_subclass(Tensor)
    axis = watched.cells.ndim - 1
    shares = plain.stride(axis) == 0
    after = fn(plain.narrow(axis, 0, 1) if shares else plain).expand(plain.shape)
    return WatchedLogits.of(after, watched.reads, watched.cells)


def _indexed(watched: WatchedLogits, index: Any) -> Tensor:
    """Index the logits; the result is watched as well if it has all positions of its rows."""
    entries = index if isinstance(index, tuple) else (index,)
    axes = watched.cells.ndim
    if entries and entries[0] is Ellipsis and len(entries) <= axes + 1:
        entries = (*(slice(None) for _ in range(axes + 2 - len(entries))), *entries[1:])
    if len(entries) > axes + 1 or any(map(_is_unusual, entries)):
        raise watched.reads.refuse("an index of another form")
    cells, part = watched.cells[entries[:axes]], watched.as_subclass(Tensor)[entries]
    if len(entries) < axes and isinstance(entries[0], int | slice):
        return WatchedLogits.of(part, watched.reads, cells)
    watched.reads.add(cells)
    return part


def _is_unusual(index: Any) -> bool:
    is_mask = isinstance(index, bool) or str(getattr(index, "dtype", "")).endswith(("bool", "int8"))
    return is_mask or index is None or index is Ellipsis


def columns_of(
    metric: Callable[[Tensor], Tensor], logits: Float[Tensor, "batch pos vocab"]
) -> tuple[int, ...] | None:
    """The single position of each row that a function reads; ``None`` if there is no such position.

    For rows that it does not read, the last position is returned.
    """
    reads, n_pos = Reads(), logits.shape[1]
    try:
        metric(WatchedLogits.of(logits, reads))
    except ReadsMore:
        return None
    columns = {cell // n_pos: cell % n_pos for cell in reads.cells}
    if reads.refused or len(columns) < len(reads.cells) or not columns:
        return None
    return tuple(columns.get(row, n_pos - 1) for row in range(len(logits)))


@dataclass(frozen=True)
class OfColumns(AtPosition):
    """A function of all logits that reads one position of each row, as a metric of a sweep.

    Its value describes the whole batch, and is returned for every row.

    Attributes:
        fn: the function, which returns one number.
        columns_read: the position of each row.
        n_pos: number of columns of the batch.
    """

    kind: ClassVar[str] = "of_columns"
    name: ClassVar[str] = "metric"

    fn: Callable[[Tensor], Tensor] = torch.sum
    columns_read: tuple[int, ...] = ()
    n_pos: int = 1

    @property
    def reads_other_rows(self) -> bool:
        """True: the value describes the whole batch."""
        return True

    def __call__(
        self, logits: Float[Tensor, "batch pos vocab"], batch: Batch
    ) -> Float[Tensor, " batch"]:
        """The value, for every row; 0 for logits without data, with which shapes are checked."""
        return logits.new_zeros(len(logits)) if logits.is_meta else super().__call__(logits, batch)

    def read_columns(self, batch: Batch) -> Int[Tensor, " batch"]:
        """The position of each row."""
        return torch.tensor(self.columns_read, device=batch.ids.device)

    def compute(self, logits: Float[Tensor, "batch vocab"]) -> Float[Tensor, " batch"]:
        """Apply the function to the logits at these positions.

        Raises:
            ReadsMore: the function now reads other positions.
        """
        cells = {row * self.n_pos + column for row, column in enumerate(self.columns_read)}
        reads = Reads(allowed=frozenset(cells))
        whole = logits[:, None].expand(-1, self.n_pos, -1)
        value = self.fn(WatchedLogits.of(whole, reads))
        if reads.refused:
            raise ReadsMore("cells that it did not read before")
        return value.reshape(()).expand(len(logits))
