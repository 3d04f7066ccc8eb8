"""How much of a batch does an edit depend on? What may be taken apart, and what stays as it was.

An edit of many prompts often does to each what it would do to that prompt alone; then prompts may
be run in any company. One that reads other rows, or whose values are laid along rows or positions,
binds its batch together.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum

from interp.edits.broadcast import laid_out
from interp.edits.edit import Edit, Mean, Scale, Zero
from interp.edits.selection import as_tuple
from interp.model.batch import Batch, column_of
from interp.points import TOKEN_AXES, Place
from interp.tensor_data import TensorData


class Freedom(IntEnum):
    """How a batch may be taken apart without changing what is computed of a row."""

    WHOLE = 0
    """All rows together, laid as they are."""
    ROWS = 1
    """Some of the rows, laid as they are."""
    ANY = 2
    """Some of the rows, with padding anywhere or none."""


def freedom(edit: Edit, place: Place) -> Freedom:
    """How the batch may be taken apart under ``edit``, which is made at ``place``."""
    if edit.select.batch is not None or edit.reads_rows:
        return Freedom.WHOLE
    if place.point.value.is_pattern and not isinstance(edit, Zero | Scale):
        # It writes at padding too, and what is written in a pattern is attended to.
        return Freedom.ROWS
    values = values_of(edit)
    if values is None:
        return Freedom.ANY
    shape = laid_out(values.tensor.shape, edit.select, place)
    selected = edit.select.per_axis(place)
    axes = list(zip(place.point.axes, selected, shape, strict=False))
    along = {axis for axis, which, size in axes if size > 1 and which is None}
    return Freedom.ANY if along.isdisjoint({"batch", *TOKEN_AXES}) else Freedom.ROWS


def of_rows(edit: Edit, place: Place, rows: Sequence[int], n: int) -> Edit:
    """The edit of some of ``n`` rows: values that are laid along rows go with them."""
    values = values_of(edit)
    if values is None or (len(rows) == n and list(rows) == list(range(n))):
        return edit
    shape = laid_out(values.tensor.shape, edit.select, place)
    if shape[0] != n or n == 1:
        return edit
    return replace(edit, values=TensorData(values.tensor[list(rows)]))  # pyright: ignore[reportCallIssue] - kinds with values


def values_of(edit: Edit) -> TensorData | None:
    """The tensor that an edit brings along, if it does."""
    values = getattr(edit, "values", None)
    return values if isinstance(values, TensorData) else None


def first_column(edit: Edit, batch: Batch) -> int:
    """The first column whose tensors ``edit`` may change, if later columns never reach earlier."""
    averages = isinstance(edit, Mean) and edit.values is None
    if edit.select.pos is None or averages:
        return 0
    real = batch.is_real
    columns = [column_of(real, position) for position in as_tuple(edit.select.pos)]
    return min(int(column.min()) for column, _ in columns)
