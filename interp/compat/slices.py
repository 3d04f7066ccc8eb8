"""Some indices along one axis, in any of the forms that TransformerLens takes as a slice."""

from typing import Any

import torch
from torch import Tensor

SliceLike = Any
"""``None`` (all), an index (the axis goes), ``(start, stop[, step])``, a slice, a list or array of
indices, or an object with ``apply(tensor, dim=)``, as :class:`utils.Slice`."""


def take(x: Tensor, part: SliceLike, axis: int) -> Tensor:
    """Some indices of ``x`` along ``axis``."""
    if part is None:
        return x
    apply = getattr(part, "apply", None)
    if apply is not None:
        return apply(x, dim=axis)
    if isinstance(part, int):
        return x.select(axis, part)
    if isinstance(part, tuple):
        part = slice(*part)
    if isinstance(part, slice):
        index = [slice(None)] * x.ndim
        index[axis] = part
        return x[tuple(index)]
    indices = torch.as_tensor(part, device=x.device)
    return x.index_select(axis, indices.nonzero()[:, 0] if indices.dtype is torch.bool else indices)


def removes_axis(part: SliceLike) -> bool:
    """Whether it is a single index."""
    return isinstance(part, int) or getattr(part, "mode", None) == "int"
