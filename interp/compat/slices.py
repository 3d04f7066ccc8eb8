"""Indexing along one axis, with any of the forms that TransformerLens accepts as a slice."""

from typing import Any

from torch import Tensor

from interp.compat.utils.slices import Slice

SliceLike = Any
"""An argument of :class:`Slice` (``None``, an index, a tuple, a list, …), or a ``Slice``."""


def take(x: Tensor, part: SliceLike, axis: int) -> Tensor:
    """Index ``x`` along ``axis``; a single index removes the axis."""
    return x if part is None else _slice(part).apply(x, dim=axis)


def removes_axis(part: SliceLike) -> bool:
    """Whether ``part`` is a single index."""
    return _slice(part).mode == "int"


def _slice(part: SliceLike) -> Slice:
    return part if isinstance(part, Slice) else Slice(part)
