"""Some indices along one axis, in any of the forms that TransformerLens takes as a slice."""

from typing import Any

from torch import Tensor

from interp.compat.utils.slices import Slice

SliceLike = Any
"""What :class:`Slice` takes (``None``, an index, a tuple, a list, …), or a ``Slice``."""


def take(x: Tensor, part: SliceLike, axis: int) -> Tensor:
    """Some indices of ``x`` along ``axis``; of a single index, without that axis."""
    return x if part is None else _slice(part).apply(x, dim=axis)


def removes_axis(part: SliceLike) -> bool:
    """Whether it is a single index."""
    return _slice(part).mode == "int"


def _slice(part: SliceLike) -> Slice:
    return part if isinstance(part, Slice) else Slice(part)
