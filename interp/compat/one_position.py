"""Which positions of the logits a function reads, found by watching how it indexes them.

A function of ``[batch pos vocab]`` that reads a single position can be given the logits of that
one alone. What it is given looks like all of them and refuses every other use, so that a value that
was not computed is never read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from interp.metrics import AtPosition

INDICES = 2
"""Of a row and a position."""
GETTERS = ("shape", "dtype", "device", "ndim", "requires_grad", "is_cuda", "layout")
ABOUT_IT = {
    Tensor.size,
    Tensor.dim,
    Tensor.__len__,
    *(getattr(Tensor, name).__get__ for name in GETTERS),
}
"""What may be asked without reading a value."""


class ReadsMore(Exception):
    """The function reads the logits in another way than at the one position."""


class WatchedLogits(Tensor):
    """Logits that note the positions at which they are indexed.

    Attributes:
        columns: the positions that were read.
        only: the one that may be; ``None`` for any.
    """

    columns: set[int]
    only: int | None

    @classmethod
    def of(cls, logits: Float[Tensor, "batch pos vocab"], only: int | None) -> "WatchedLogits":
        """These logits, watched."""
        watched = logits.detach().as_subclass(cls)
        watched.columns, watched.only = set(), only
        return watched

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Index at a position, or describe itself.

        Raises:
            ReadsMore: anything else.
        """
        with torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
            if func in ABOUT_IT:
                return func(*args, **(kwargs or {}))
            first = args[0] if args else None
            if func is not Tensor.__getitem__ or not isinstance(first, WatchedLogits):
                raise ReadsMore(str(func))
            index = with_rows(args[1])
            read = positions_of(index[1], first.shape[1])
            first.columns |= read
            if first.only is not None and read != {first.only}:
                raise ReadsMore(f"positions {sorted(read)}")
            return first.as_subclass(Tensor)[index]


def with_rows(index: Any) -> tuple[Any, ...]:
    """The index as one of rows, positions and perhaps the vocabulary.

    Raises:
        ReadsMore: it is of another form.
    """
    entries = index if isinstance(index, tuple) else (index,)
    if len(entries) == INDICES + 1 and entries[0] is Ellipsis:
        entries = (slice(None), *entries[1:])
    masks = [one for one in entries if isinstance(one, bool) or _is_mask(one)]
    if not INDICES <= len(entries) <= INDICES + 1 or masks:
        raise ReadsMore("an index of another form")
    if any(one is None or one is Ellipsis for one in entries):
        raise ReadsMore("an index of another form")
    return entries


def _is_mask(index: Any) -> bool:
    return getattr(index, "dtype", None) in (torch.bool, torch.uint8) or str(
        getattr(index, "dtype", "")
    ) in ("bool", "uint8")


def positions_of(index: Any, n: int) -> set[int]:
    """Which of ``n`` positions an index takes."""
    if isinstance(index, slice):
        return set(range(n)[index])
    return {int(one) % n for one in torch.as_tensor(index).flatten().tolist()}


def column_read(
    metric: Callable[[Tensor], Tensor], logits: Float[Tensor, "batch pos vocab"]
) -> int | None:
    """The one position that a function reads of logits; ``None`` if it reads them otherwise."""
    watched = WatchedLogits.of(logits, None)
    try:
        metric(watched)
    except ReadsMore:
        return None
    with torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
        columns = watched.columns
    return columns.pop() if len(columns) == 1 else None


@dataclass(frozen=True)
class OfOnePosition(AtPosition):
    """A function of all logits that reads one position, as a metric of a sweep.

    Its number is of the batch as a whole, and every row has it.

    Attributes:
        fn: the function.
        n_pos: columns of the batch.
        n_rows: rows of the batch.
    """

    kind: ClassVar[str] = "of_one_position"
    name: ClassVar[str] = "metric"

    fn: Callable[[Tensor], Tensor] = torch.sum
    n_pos: int = 1
    n_rows: int = 1

    def for_rows(self, rows: Any, n: int) -> "OfOnePosition":  # noqa: ARG002
        """Itself; of a part of the rows it has no value.

        Raises:
            ReadsMore: some rows are missing.
        """
        if list(rows) != list(range(self.n_rows)):
            raise ReadsMore("rows of other batches")
        return self

    def compute(self, logits: Float[Tensor, "batch vocab"]) -> Float[Tensor, " batch"]:
        """The function of the logits at its position."""
        column = self.pos if isinstance(self.pos, int) else self.n_pos - 1
        whole = logits[:, None].expand(-1, self.n_pos, -1)
        return self.fn(WatchedLogits.of(whole, column)).reshape(()).expand(self.n_rows)
