"""Broadcasts values to the selected part of a tensor, and checks them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from interp.edits.selection import EditSite, Index, Selection, as_tuple
from interp.errors import InvalidEdit
from interp.io import TensorData
from interp.points import Place


def check_returned(returned: object, old: Tensor, name: str) -> Tensor:
    """The result of a user's function, if it can replace ``old``.

    Raises:
        InvalidEdit: it is not a tensor, or its shape, dtype or device differs.
    """
    if not isinstance(returned, Tensor):
        raise InvalidEdit(
            f"The function given for {name} returned {type(returned).__name__}; it should return a "
            "tensor, or None for no change beyond what it did in place."
        )
    for attribute in ("shape", "dtype", "device"):
        got, expected = getattr(returned, attribute), getattr(old, attribute)
        if got != expected:
            if attribute == "shape":
                got, expected = tuple(got), tuple(expected)
            raise InvalidEdit(
                f"The function given for {name} returned {attribute} {got}; expected {expected}."
            )
    return returned


def broadcast_values(
    values: TensorData | float,
    old: Tensor,
    whole: Tensor,
    index: Index,
    select: Selection,
    site: EditSite,
) -> Tensor:
    """``values`` broadcast to the shape of ``old = whole[index]``, the selected part.

    Values may lack the axes along which a single index is selected. Values with the shape of the
    whole tensor (or of one row of it) are indexed in the same way, unless they have the shape of
    the selected part: then they are in the order of the selection.

    Raises:
        InvalidEdit: the dtype of the values differs, or their shape does not broadcast.
    """
    if not isinstance(values, TensorData):
        return torch.full_like(old, values)
    tensor = (values.in_graph() if torch.is_grad_enabled() else values.tensor).to(old.device)
    if tensor.dtype != old.dtype:
        raise InvalidEdit(
            f"{site.place}: the values are {tensor.dtype}, the activations {old.dtype}; "
            f"convert them with .to({old.dtype})."
        )
    if tensor.shape != old.shape and tensor.shape in (whole.shape, (1, *whole.shape[1:])):
        return tensor.expand(whole.shape)[index]
    shape = aligned_shape(tensor.shape, select, site.place)
    try:
        return tensor.reshape(shape).expand(old.shape)
    except RuntimeError as error:
        single = _single_index_axes(select, site.place)
        expected = [size for axis, size in enumerate(old.shape) if axis not in single]
        raise InvalidEdit(
            f"{site.place}: values of shape {tuple(values.tensor.shape)} do not fit the selected "
            f"part, {tuple(expected)}, nor the whole tensor, {tuple(whole.shape)}."
        ) from error


def aligned_shape(shape: Sequence[int], select: Selection, place: Place) -> tuple[int, ...]:
    """The shape of values with one size for each axis of ``place``; 1 for the axes they lack."""
    single, n = _single_index_axes(select, place), len(place.point.axes)
    sizes = list(shape)
    if len(sizes) <= n - len(single):
        sizes = [1] * (n - len(single) - len(sizes)) + sizes
        for axis in single:
            sizes.insert(axis, 1)
    return tuple([1] * (n - len(sizes)) + sizes)


def exceeds_selection(shape: Sequence[int], select: Selection, place: Place) -> set[str]:
    """The axes along which values of ``shape`` are larger than the selection."""
    sizes = aligned_shape(shape, select, place)
    axes = zip(place.point.axes, select.per_axis(place), sizes, strict=False)
    return {axis for axis, which, size in axes if which is not None and size > len(as_tuple(which))}


def may_vary_by_position(values: TensorData | float | None) -> bool:
    """Whether values have an axis that may be positions, which is any but the last."""
    return isinstance(values, TensorData) and values.tensor.ndim > 1


def _single_index_axes(select: Selection, place: Place) -> list[int]:
    """The axes along which a single index is selected."""
    return [axis for axis, which in enumerate(select.per_axis(place)) if isinstance(which, int)]
