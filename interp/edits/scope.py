"""How an edit depends on its batch: whether rows may run separately, and the first changed column.

Most edits have the same effect on a prompt in any batch, so that prompts may be batched freely. An
edit that reads other rows, or whose values are aligned with rows or positions, restricts this.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum

from interp.edits.edit import Edit, Mean, Scale, Zero, values_of
from interp.edits.selection import as_tuple
from interp.edits.values import aligned_shape, exceeds_selection
from interp.model import Batch, column_of
from interp.points import TOKEN_AXES, Place


class BatchSplit(IntEnum):
    """How a batch may be split without changing the results of a row."""

    NONE = 0
    """Not at all: all rows run together, padded as given."""
    ROWS = 1
    """Into groups of rows, padded as given."""
    ROWS_REPADDED = 2
    """Into groups of rows, padded anew."""


def batch_split(edit: Edit, place: Place) -> BatchSplit:
    """How the batch may be split when ``edit`` is applied at ``place``."""
    if edit.select.batch is not None or edit.reads_other_rows:
        return BatchSplit.NONE
    if place.point.value.is_pattern and not isinstance(edit, Zero | Scale):
        # It also writes nonzero weights on padding, which is then attended to.
        return BatchSplit.ROWS
    values = values_of(edit)
    if values is None:
        return BatchSplit.ROWS_REPADDED
    place, select = edit.axes_of_values(place)
    shape = aligned_shape(values.shape, select, place)
    axes = list(zip(place.point.axes, select.per_axis(place), shape, strict=False))
    along = {axis for axis, which, size in axes if size > 1 and which is None}
    along |= exceeds_selection(values.shape, select, place)
    if along.isdisjoint({"batch", *TOKEN_AXES}):
        return BatchSplit.ROWS_REPADDED
    return BatchSplit.ROWS


def for_rows(edit: Edit, place: Place, rows: Sequence[int], n: int) -> Edit:
    """The edit for some of ``n`` rows: values with one entry per row are restricted to these."""
    values = values_of(edit)
    if values is None:
        return edit
    place, select = edit.axes_of_values(place)
    shape = aligned_shape(values.shape, select, place)
    if shape[0] != n or n == 1:
        return edit
    return replace(edit, values=values.rows(rows))  # pyright: ignore[reportCallIssue] - kinds with values


def first_changed_column(edit: Edit, place: Place, batch: Batch) -> int:
    """The first column that must be computed for ``edit``, if columns don't depend on later ones.

    This is the first column that it may change, or 0 if it needs all columns: for their mean, or
    because its values have the shape of the whole tensor.
    """
    values = values_of(edit)
    averages = isinstance(edit, Mean) and values is None
    if edit.select.pos is None or averages:
        return 0
    place, select = edit.axes_of_values(place)
    if values is not None and exceeds_selection(values.shape, select, place):
        return 0
    real = batch.is_real
    columns = [column_of(real, position) for position in as_tuple(edit.select.pos)]
    return min(int(column.min()) for column, _ in columns)
