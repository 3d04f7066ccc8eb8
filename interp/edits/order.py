"""Several edits at one place: none may be written over by a later one before anything reads it."""

from collections.abc import Mapping, Sequence

from interp.edits.edge import Edge
from interp.edits.edit import Apply, Edit, Mean, Replace, Resample, Zero
from interp.edits.selection import AxisIndices, as_tuple
from interp.errors import InvalidEdit
from interp.points import Place


def check_order(edits: Sequence[Edit], place: Place, sizes: Mapping[str, int]) -> None:
    """Make sure that each edit of a place has an effect.

    A later edit voids an earlier one if it overwrites the whole selection of that one. A function
    may do more than change its tensor, so it is never void; and what it, or a mean or a donor of
    the run's own batch, has read in between is not void either.

    Args:
        edits: the edits of one place, in order.
        place: where they are.
        sizes: of the axes whose size does not depend on the batch.

    Raises:
        InvalidEdit: an edit is void.
    """
    for later, edit in enumerate(edits):
        for earlier in reversed(range(later)):
            if _voids(edit, edits[earlier], place, sizes):
                raise InvalidEdit(
                    f"{place}: edit {later} there ({edit.kind}) writes over everything that edit "
                    f"{earlier} ({edits[earlier].kind}) changes, which would have no effect. Leave "
                    "one of them out, or select different parts."
                )
            if edits[earlier].reads_other_rows:
                break


def _voids(later: Edit, earlier: Edit, place: Place, sizes: Mapping[str, int]) -> bool:
    """Whether one edit overwrites the selection of another, along every axis."""
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
    return all(_has(of_later, of_earlier, sizes.get(axis)) for axis, of_later, of_earlier in axes)


def overwrites(edit: Edit) -> bool:
    """Whether what an edit writes does not depend on what was there."""
    if isinstance(edit, Mean | Resample):
        return edit.values is not None
    if isinstance(edit, Edge):
        return edit.resolved_ends.read is not None
    return isinstance(edit, Zero | Replace)


def _has(later: AxisIndices, earlier: AxisIndices, size: int | None) -> bool:
    """Whether indices along an axis are among others; its size is ``None`` where rows differ."""
    if later is None:
        return True
    if earlier is None:
        return size is not None and _counted(later, size) >= set(range(size))
    return _counted(later, size) >= _counted(earlier, size)


def _counted(which: int | tuple[int, ...], size: int | None) -> set[int]:
    """Indices, negative ones counted from the end where the size is known."""
    return {index + (size or 0) if index < 0 else index for index in as_tuple(which)}
