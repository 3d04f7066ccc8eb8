"""The values that an edit writes: broadcast to the selected part, or computed from a batch.

A batch has means over its tokens, and donors for resampling. Donors are drawn from one cycle
through all prompts, so that no prompt is its own donor and all positions of a prompt have the same
donor, as far as it is long enough (Chan et al. 2022, "Causal Scrubbing": activations of another
input).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.edits.selection import EditSite, Index, Selection, as_tuple
from interp.errors import InvalidEdit
from interp.io import TensorData
from interp.points import Place


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
    tensor = values.on(old.device)
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
            f"{site.place}: values of shape {tuple(values.shape)} do not fit the selected "
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


def _single_index_axes(select: Selection, place: Place) -> list[int]:
    """The axes along which a single index is selected."""
    return [axis for axis, which in enumerate(select.per_axis(place)) if isinstance(which, int)]


# ---- computed from a batch -----------------------------------------------------------------------


def summing_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums: float32 for half precision, in which sums would overflow or be rounded."""
    return torch.promote_types(dtype, torch.float32)


def token_mean(
    x: Float[Tensor, "batch pos *rest"], real: Bool[Tensor, "batch pos"] | None
) -> Float[Tensor, "1 1 *rest"]:
    """The mean over all tokens; ``real`` marks those that are not padding."""
    if real is None:
        return x.mean((0, 1), keepdim=True)
    wide = summing_dtype(x.dtype)
    weight = real.to(wide).reshape(*x.shape[:2], *[1] * (x.ndim - 2))
    return ((x * weight).sum((0, 1), keepdim=True) / weight.sum()).to(x.dtype)


def batch_mean(x: Tensor, site: EditSite) -> Tensor:
    """The mean over rows, and over real tokens if the point has a single token axis.

    Raises:
        InvalidEdit: the place is scores or pattern and the prompts are padded, so that rows have
            different lengths.
    """
    axes = site.place.point.axes
    if site.place.point.is_matrix:
        if site.context.real is not None or site.real(axes[-1]) is not None:
            raise InvalidEdit(f"{site.place}: a mean over rows needs prompts of one length.")
        return x.mean(0, keepdim=True)
    real = site.real(axes[1])
    return token_mean(x, None if real is None else real[:, -x.shape[1] :])


def donor_rows(n: int, seed: int) -> Int[Tensor, " batch"]:
    """For each of ``n`` rows, its predecessor in a cycle through all rows, drawn with ``seed``."""
    cycle = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return torch.empty_like(cycle).scatter_(0, cycle, cycle.roll(1))
