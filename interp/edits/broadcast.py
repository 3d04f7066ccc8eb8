"""Does what an edit would write fit where it would stand? Alignment, means and donors."""

from collections.abc import Sequence

import torch
from torch import Tensor

from interp.edits.selection import Selection, Site
from interp.errors import InvalidEdit
from interp.points import Place
from interp.tensor_data import TensorData


def checked(returned: object, old: Tensor, name: str) -> Tensor:
    """``returned``, if it can stand where ``old`` stood."""
    if not isinstance(returned, Tensor):
        raise InvalidEdit(
            f"The function given for {name} returned {type(returned).__name__}; it should return a "
            "tensor, or None to leave things as they are."
        )
    for what in ("shape", "dtype", "device"):
        got, expected = getattr(returned, what), getattr(old, what)
        if got != expected:
            got, expected = (tuple(s) if what == "shape" else s for s in (got, expected))
            raise InvalidEdit(
                f"The function given for {name} returned {what} {got}; expected {expected}."
            )
    return returned


def aligned(values: TensorData | float, old: Tensor, select: Selection, site: Site) -> Tensor:
    """``values`` broadcast to ``old``; axes selected by a single index need not be there."""
    if not isinstance(values, TensorData):
        return torch.full_like(old, values)
    tensor = values.tensor.to(old.device)
    if tensor.dtype != old.dtype:
        raise InvalidEdit(
            f"{site.place}: the values are {tensor.dtype}, the activations {old.dtype}; "
            f"convert them with .to({old.dtype})."
        )
    shape = laid_out(tensor.shape, select, site.place)
    try:
        return tensor.reshape(shape).expand(old.shape)
    except RuntimeError as error:
        single = _single(select, site.place)
        wanted = [size for axis, size in enumerate(old.shape) if axis not in single]
        raise InvalidEdit(
            f"{site.place}: values of shape {tuple(values.tensor.shape)} do not fit the selected "
            f"part, {tuple(wanted)}."
        ) from error


def laid_out(shape: Sequence[int], select: Selection, place: Place) -> tuple[int, ...]:
    """The shape of values, one size for each axis of ``place``: 1 where they repeat."""
    single, n = _single(select, place), len(place.point.axes)
    sizes = list(shape)
    if len(sizes) <= n - len(single):
        sizes = [1] * (n - len(single) - len(sizes)) + sizes
        for axis in single:
            sizes.insert(axis, 1)
    return tuple([1] * (n - len(sizes)) + sizes)


def _single(select: Selection, place: Place) -> list[int]:
    """The axes along which one index is selected: values need not have them."""
    return [axis for axis, which in enumerate(select.per_axis(place)) if isinstance(which, int)]


def laid_along_positions(values: TensorData | float | None) -> bool:
    """Whether values have an axis that may be positions (any but the last might)."""
    return isinstance(values, TensorData) and values.tensor.ndim > 1


def mean_of(x: Tensor, site: Site) -> Tensor:
    """The mean over rows, and over real positions where the point has one axis of them."""
    axes = site.place.point.axes
    if site.place.point.is_matrix:
        if site.context.real is not None or site.real(axes[-1]) is not None:
            raise InvalidEdit(f"{site.place}: a mean over rows needs prompts of one length.")
        return x.mean(0, keepdim=True)
    real = site.real(axes[1])
    if real is None:
        return x.mean((0, 1), keepdim=True)
    weight = real[:, -x.shape[1] :].to(x.dtype).reshape(*x.shape[:2], *[1] * (x.ndim - 2))
    return (x * weight).sum((0, 1), keepdim=True) / weight.sum()


def donors(n: int, seed: int) -> Tensor:
    """A permutation of n rows without a fixed point: one cycle through all, drawn from ``seed``."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    chosen = torch.empty_like(order)
    chosen[order] = order.roll(1)
    return chosen
