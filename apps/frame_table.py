"""Formats the frame of an analysis as a table of strings with few columns and few digits."""

from collections.abc import Callable
from typing import Any

import pandas as pd

from analyses.results import MARK, corrected, fixed, interval_text, percent, places_of, signed

Table = tuple[list[tuple[str, str]], list[tuple[str, ...]]]
"""Columns (title, alignment: ``left`` or ``right``) and rows."""
SIGNED = {"effect", "interaction", "difference"}
"""Columns in which positive numbers have a sign."""
ALIKE = (*SIGNED, "size", "low", "high")
"""Columns that have the same number of decimals where a table has an effect."""
TESTED = ("low", "high", "p", "q", "significant")
"""Columns without numbers where there are too few prompts for an interval."""


def table_of_frame(frame: pd.DataFrame, top: int | None = None) -> Table:
    """Format the first ``top`` rows of a frame, or all of them.

    The columns ``low`` and ``high`` become one. The columns p and n are left out, and so are layer,
    head, writer and reader if there is a column with names, and intervals and significance if no
    row has them.
    """
    reduced = frame.drop(columns=_left_out(frame))
    columns: list[tuple[str, str]] = []
    cells: list[list[str]] = []
    for name in reduced.columns:
        if name != "high":
            columns.append(_heading(reduced, name))
            cells.append(_texts(reduced, name)[:top])
    return columns, list(zip(*cells, strict=True))


def _left_out(frame: pd.DataFrame) -> list[str]:
    named = ["layer", "head", "writer", "reader"] if "name" in frame else []
    untested = TESTED if "q" in frame and frame["q"].isna().all() else ()
    return [name for name in map(str, frame) if name in {"p", "n", *named, *untested}]


def _heading(frame: pd.DataFrame, name: str) -> tuple[str, str]:
    numbers = pd.api.types.is_numeric_dtype(frame[name]) and frame[name].dtype != bool
    return "95 % interval" if name == "low" else name, "right" if numbers else "left"


def _texts(frame: pd.DataFrame, name: str) -> list[str]:
    """The cells of a column as strings."""
    values = frame[name].tolist()
    if name == "low":
        texts = _intervals(frame)
        return texts if _has_signs(frame, "low") else [text.replace("+", "") for text in texts]
    if name in FORMATS:
        return [FORMATS[name](value) for value in values]
    if frame[name].dtype == bool:
        return ["yes" if value else "no" for value in values]
    if not pd.api.types.is_float_dtype(frame[name]):
        return [str(value) for value in values]
    places = _places(frame, name)
    return [(signed if _has_signs(frame, name) else fixed)(value, places) for value in values]


def _intervals(frame: pd.DataFrame) -> list[str]:
    places = _places(frame, "low")
    ends = zip(frame["low"].tolist(), frame["high"].tolist(), strict=True)
    return [interval_text(*both, places) for both in ends]


def _places(frame: pd.DataFrame, name: str) -> int:
    """The number of decimals of a column; the same for effects, their sizes and intervals."""
    together = ALIKE if SIGNED & {*frame.columns} else ("low", "high")
    columns = [column for column in together if column in frame] if name in together else [name]
    return places_of(value for column in columns for value in frame[column])


def _has_signs(frame: pd.DataFrame, name: str) -> bool:
    """Whether positive numbers have a sign: in columns of effects, or if some are negative."""
    effects = name in SIGNED or (name == "low" and bool(SIGNED & {*frame.columns}))
    return effects or bool((frame[name] < 0).any())


def _mark(significant: object) -> str:
    return MARK if significant else ""


FORMATS: dict[str, Callable[[Any], str]] = {"q": corrected, "share": percent, "significant": _mark}
"""Columns with a format of their own."""
