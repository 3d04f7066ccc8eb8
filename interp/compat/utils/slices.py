"""``Slice``: an index along one axis, for arguments such as ``pos_slice`` and ``batch_slice``.

Slice(3)             that index; the axis is dropped
Slice((1, 5, 2))     1:5:2
Slice([1, 4])        these indices
Slice(None)          all
"""

from typing import Any

import numpy as np
from torch import Tensor

from interp.compat.errors import InvalidInput
from interp.compat.utils.tensors import to_numpy
from interp.errors import shorten

SliceInput = (
    int
    | tuple[int]
    | tuple[int, int]
    | tuple[int, int, int]
    | list[int]
    | Tensor
    | np.ndarray[Any, Any]
    | None
)


class Slice:
    """An index along one axis.

    Attributes:
        slice: the index: an integer, a ``slice`` or an array.
        mode: ``int``, ``slice``, ``array`` or ``identity``.

    Raises:
        InvalidInput: the argument has none of the accepted types.
    """

    slice: Any
    mode: str

    def __init__(self, input_slice: Any = None) -> None:
        if input_slice is None:
            self.slice, self.mode = slice(None), "identity"
        elif isinstance(input_slice, tuple):
            self.slice, self.mode = slice(*input_slice), "slice"
        elif isinstance(input_slice, slice):
            self.slice, self.mode = input_slice, "slice"
        elif isinstance(input_slice, int):
            self.slice, self.mode = input_slice, "int"
        elif isinstance(input_slice, list | Tensor | np.ndarray):
            self.slice, self.mode = to_numpy(input_slice), "array"
        else:
            raise InvalidInput(
                "A slice is an integer, a tuple (start, stop, step), a list or tensor of indices, "
                f"or None; got {shorten(input_slice)}."
            )

    def apply(self, tensor: Tensor, dim: int = 0) -> Tensor:
        """Index a tensor along an axis."""
        index: list[Any] = [slice(None)] * tensor.ndim
        index[dim] = self.slice
        return tensor[tuple(index)]

    def indices(self, max_ctx: int | None = None) -> Any:
        """The indices that are selected along an axis of size ``max_ctx``, as an array.

        Raises:
            InvalidInput: ``max_ctx`` is missing, and the index is not an integer.
        """
        if self.mode == "int":
            return np.array([self.slice], dtype=np.int64)
        if max_ctx is None:
            raise InvalidInput("The indices of a slice depend on the size of the axis: max_ctx=.")
        return np.arange(max_ctx, dtype=np.int64)[self.slice]

    def __repr__(self) -> str:
        return f"Slice: {self.slice} Mode: {self.mode} "

    @classmethod
    def unwrap(cls, slice_input: Any) -> "Slice":
        """Convert to a ``Slice``; an integer becomes a list of one index, which keeps the axis."""
        if isinstance(slice_input, Slice):
            return slice_input
        return cls([slice_input] if isinstance(slice_input, int) else slice_input)


def take(x: Tensor, part: Any, axis: int) -> Tensor:
    """Index ``x`` along ``axis`` with a ``Slice`` or its argument; an integer removes the axis."""
    return x if part is None else _slice(part).apply(x, dim=axis)


def removes_axis(part: Any) -> bool:
    """Whether ``part`` is a single index."""
    return _slice(part).mode == "int"


def _slice(part: Any) -> Slice:
    return part if isinstance(part, Slice) else Slice(part)
