"""The numbers of a result by the labels of their rows, so that two results can be joined.

One column of a result's table holds the numbers. Its rows are labelled by the columns that hold no
measurements: layer, head, name, role, point, position and so on. Where a result has a table with
one number per prompt, that table is used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from analyses.results.result import Result
from interp.errors import InvalidInput, shorten

PROMPT = "prompt"
USUAL = ("effect", "value", "score")
"""Columns of numbers that are used by default; the first that exists."""
NO_LABELS = ("n", "top_token", "rank", PROMPT)
"""Columns of integers and texts that are results rather than labels, and the prompts."""
POSITIONS, TOKENS = ("pos", "query", "key"), ("token", "query_token", "key_token")
"""Columns of positions, and of the tokens there, which differ from prompt to prompt."""
Label = tuple[object, ...]


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """One number per row and prompt.

    Attributes:
        axes: the columns that identify rows.
        labels: the entries of each row in these columns.
        values: the numbers; NaN where a prompt has no such row.
        present: where a prompt has the row, of which the number may be NaN.
        column: the column of the numbers.
        of_prompts: whether there is one number per prompt; else there is a single one per row.
    """

    axes: tuple[str, ...]
    labels: tuple[Label, ...]
    values: Float[Tensor, "row prompt"]
    present: Bool[Tensor, "row prompt"]
    column: str
    of_prompts: bool

    @property
    def cells(self) -> dict[str, list[Any]]:
        """The columns that identify rows."""
        return {axis: [label[n] for label in self.labels] for n, axis in enumerate(self.axes)}

    def in_order_of(self, other: "LabelledRows") -> Float[Tensor, "row prompt"]:
        """The numbers in the order of the rows of ``other``, which has the same rows."""
        number = {label: n for n, label in enumerate(self.labels)}
        return self.values[[number[label] for label in other.labels]]


def rows_of(result: Result, column: str | None = None) -> LabelledRows:
    """The numbers of a column of a result's table, by row.

    Args:
        result: the result of an analysis.
        column: name of the column; by default the first of ``effect``, ``value`` and ``score`` that
            exists.

    Raises:
        InvalidInput: ``result`` is not a result, there is no such column of numbers, or rows have
            equal labels.
    """
    if not isinstance(result, Result):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(
            f"The result of an analysis, which has a table, was expected; got {shorten(result)}."
        )
    return rows_of_table(*table_with(result, column), type(result).__name__)


def rows_of_table(frame: pd.DataFrame, column: str, name: str) -> LabelledRows:
    """The numbers of a column of a table, by row.

    Args:
        frame: the table.
        column: name of the column.
        name: what the table is of, for messages.

    Raises:
        InvalidInput: rows have equal labels.
    """
    axes = [name for name in map(str, frame) if name != column and _is_axis(frame, name)]
    labels = [tuple(map(_plain, row)) for row in frame[axes].itertuples(index=False, name=None)]
    of_prompts = PROMPT in frame
    prompts = frame[PROMPT].tolist() if of_prompts else [0] * len(frame)
    rows = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    if len(set(zip(labels, prompts, strict=True))) < len(frame):
        raise InvalidInput(
            f"Rows of {name} have equal labels ({', '.join(axes)}), so that they "
            "can't be joined with those of another."
        )
    values = torch.full((len(rows), 1 + max(prompts, default=0)), torch.nan, dtype=torch.float64)
    where = torch.tensor([rows[label] for label in labels]), torch.tensor(prompts)
    values[where] = torch.tensor(frame[column].to_numpy(dtype=float))
    present = torch.zeros_like(values, dtype=torch.bool)
    present[where] = True
    return LabelledRows(tuple(axes), tuple(rows), values, present, column, of_prompts)


def table_with(result: Result, column: str | None) -> tuple[pd.DataFrame, str]:
    """The table that has the column, if possible with a number per prompt; and the column.

    Args:
        result: the result of an analysis.
        column: as for :func:`rows_of`.

    Raises:
        InvalidInput: it has no such column of numbers.
    """
    makers = [getattr(result, name, None) for name in ("to_prompt_frame", "to_frame")]
    frames = [maker() for maker in makers if maker is not None]
    for frame in frames:
        for name in USUAL if column is None else (column,):
            if name in frame and pd.api.types.is_numeric_dtype(frame[name]):
                return frame, name
    numbers = dict.fromkeys(name for frame in frames for name in frame.select_dtypes("float"))
    asked = "usual column of numbers" if column is None else f"column {shorten(column)} of numbers"
    raise InvalidInput(
        f"{type(result).__name__} has no {asked}; column= is one of {', '.join(numbers)}."
    )


def check_same_rows(rows: Sequence[LabelledRows], names: Sequence[str]) -> None:
    """Check that all have the same rows and prompts as the first.

    Raises:
        InvalidInput: one has others; the message says which axes differ, and in what.
    """
    first = rows[0]
    for other, name in zip(rows[1:], names[1:], strict=True):
        if other.axes != first.axes:
            raise InvalidInput(
                f"Rows of {names[0]} are labelled by {', '.join(first.axes)}, those of {name} by "
                f"{', '.join(other.axes)}; only equal ones can be compared."
            )
        if set(other.labels) != set(first.labels):
            differences = _differences({names[0]: first, name: other})
            raise InvalidInput(
                f"{names[0]} and {name} do not have the same rows: {differences}. Compare models "
                "of one shape, or ask for what both have."
            )
        if other.values.shape != first.values.shape:
            raise InvalidInput(
                f"{names[0]} was measured on {first.values.shape[1]} prompts, {name} on "
                f"{other.values.shape[1]}; give both the same."
            )


def titles(cells: Mapping[str, Sequence[object]]) -> list[str]:
    """A title for each row, such as ``L0H5 induction``."""
    named = {"layer", "head", "neuron"} if "name" in cells else set[str]()
    axes = [axis for axis in cells if axis not in named]
    constant = {axis for axis in axes if len(set(cells[axis])) == 1 and len(cells[axis]) > 1}
    varying = [axis for axis in axes if axis not in constant] or axes

    def text(axis: str, value: object) -> str:
        return str(value) if isinstance(value, str) else f"{axis} {value}"

    rows = zip(*(cells[axis] for axis in varying), strict=True)
    return [
        " ".join(
            text(axis, value) for axis, value in zip(varying, row, strict=True) if value is not None
        )
        for row in rows
    ]


def _is_axis(frame: pd.DataFrame, name: str) -> bool:
    """Whether a column labels rows rather than holding results."""
    kind, is_at_positions = frame[name], any(column in frame for column in POSITIONS)
    if name in NO_LABELS or (name in TOKENS and is_at_positions):
        return False
    return not pd.api.types.is_float_dtype(kind) and not pd.api.types.is_bool_dtype(kind)


def _plain(value: Any) -> object:  # noqa: ANN401 - of any frame
    """An entry of a frame as a label; missing entries are ``None``."""
    if pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value


def _differences(rows: Mapping[str, LabelledRows]) -> str:
    """Describe what only one of the two has, by axis; else how many rows they share."""
    (first_name, first), (second_name, second) = rows.items()
    differences: list[str] = []
    for axis in first.axes:
        first_labels, second_labels = (dict.fromkeys(each.cells[axis]) for each in (first, second))
        for name, left, right in (
            (first_name, first_labels, second_labels),
            (second_name, second_labels, first_labels),
        ):
            only = [str(value) for value in left if value not in right]
            if only:
                more = ", …" if len(only) > 4 else ""  # noqa: PLR2004 - as many as are read easily
                differences.append(f"only {name} has {axis} {', '.join(only[:4])}{more}")
    shared = len(set(first.labels) & set(second.labels))
    return "; ".join(differences) or (
        f"they share {shared}, of {len(first.labels)} and {len(second.labels)}"
    )
