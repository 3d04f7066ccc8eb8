"""Checks several edits at one place: a later edit must not overwrite an earlier, unread one."""

from collections.abc import Mapping, Sequence

from interp.edits.edge import Edge
from interp.edits.edit import Edit, Mean, Replace, Resample, Zero
from interp.edits.function import Apply
from interp.edits.selection import AxisIndices, as_tuple
from interp.errors import InvalidEdit
from interp.points import Place


def check_order(edits: Sequence[Edit], place: Place, sizes: Mapping[str, int]) -> None:
    """Make sure that each edit of a place has an effect.

    An edit has no effect if a later one overwrites its whole selection. A function may do more than
    change its tensor, so it always has an effect; and so has an edit whose result is read in
    between by a function, or by a mean or resampling over the run's own batch.

    Args:
        edits: the edits of one place, in order.
        place: the place.
        sizes: sizes of the axes that do not depend on the batch.

    Raises:
        InvalidEdit: an edit has no effect.
    """
    for later, edit in enumerate(edits):
        for earlier in reversed(range(later)):
            if _overwrites_all(edit, edits[earlier], place, sizes):
                raise InvalidEdit(
                    f"{place}: edit {later} there ({edit.kind}) overwrites everything that edit "
                    f"{earlier} ({edits[earlier].kind}) changes, which would have no effect. Leave "
                    "one of them out, or select different parts."
                )
            if edits[earlier].reads_other_rows:
                break


def _overwrites_all(later: Edit, earlier: Edit, place: Place, sizes: Mapping[str, int]) -> bool:
    """Whether an edit overwrites the whole selection of an earlier one."""
    if isinstance(earlier, Apply) or not overwrites(later):
        return False
    if isinstance(earlier, Edge) and isinstance(later, Edge):
        return False  # their changes add up
    axes = zip(
        place.point.axes,
        later.select.per_axis(place),
        earlier.select.per_axis(place),
        strict=True,
    )
    return all(
        _includes(of_later, of_earlier, sizes.get(axis)) for axis, of_later, of_earlier in axes
    )


def overwrites(edit: Edit) -> bool:
    """Whether the values that an edit writes do not depend on those that it replaces."""
    if isinstance(edit, Mean | Resample):
        return edit.values is not None
    if isinstance(edit, Edge):
        return edit.resolved_ends.read is not None
    return isinstance(edit, Zero | Replace)


def _includes(later: AxisIndices, earlier: AxisIndices, size: int | None) -> bool:
    """Whether ``later`` includes all indices of ``earlier`` along an axis.

    The size of the axis is ``None`` if it varies between rows.
    """
    if later is None:
        return True
    if earlier is None:
        return size is not None and _nonnegative(later, size) >= set(range(size))
    return _nonnegative(later, size) >= _nonnegative(earlier, size)


def _nonnegative(which: int | tuple[int, ...], size: int | None) -> set[int]:
    """The set of indices; negative ones are resolved if the size is known."""
    return {index + (size or 0) if index < 0 else index for index in as_tuple(which)}
