"""Formats the frame of an analysis as a table of strings with few columns and few digits."""

from collections.abc import Iterable
from math import floor, isfinite, isnan, log10

import pandas as pd

Table = tuple[list[tuple[str, str]], list[tuple[str, ...]]]
"""Columns (title, alignment: ``left`` or ``right``) and rows."""
NONE = "–"
"""Shown for a missing number."""
SMALLEST_Q = 0.001
SIGNED = {"effect", "interaction", "difference"}
"""Columns in which positive numbers have a sign."""


def table_of_frame(frame: pd.DataFrame, top: int | None = None) -> Table:
    """Format the first ``top`` rows of a frame, or all of them.

    The columns ``low`` and ``high`` become one. The columns p and n are left out, and so are layer,
    head, writer and reader if there is a column with names.
    """
    kept = frame.drop(columns=_left_out(frame))
    columns: list[tuple[str, str]] = []
    cells: list[list[str]] = []
    for name in kept.columns:
        if name != "high":
            columns.append(_heading(kept, name))
            cells.append(_texts(kept, name)[:top])
    return columns, list(zip(*cells, strict=True))


def places_of(numbers: Iterable[float]) -> int:
    """The number of decimals that shows three digits of the largest number."""
    largest = max((abs(number) for number in numbers if isfinite(number)), default=0.0)
    return 3 if largest == 0 else min(8, max(1, 2 - floor(log10(largest))))


def signed(value: float, places: int) -> str:
    """A number with its sign, or zero without one; a dash for NaN."""
    if isnan(value):
        return NONE
    text = f"{value:+.{places}f}"
    return text if float(text) else text[1:]


def interval_text(low: float, high: float, places: int) -> str:
    """An interval with signs and a number of decimals; a dash for NaN."""
    return NONE if isnan(low) else f"{signed(low, places)} to {signed(high, places)}"


def corrected(q: float) -> str:
    """A corrected p-value with three decimals; a dash for NaN."""
    return NONE if isnan(q) else "< 0.001" if q < SMALLEST_Q else f"{q:.3f}"


def _left_out(frame: pd.DataFrame) -> list[str]:
    named = ["layer", "head", "writer", "reader"] if "name" in frame else []
    return [name for name in ("p", "n", *named) if name in frame]


def _heading(frame: pd.DataFrame, name: str) -> tuple[str, str]:
    numbers = pd.api.types.is_numeric_dtype(frame[name]) and frame[name].dtype != bool
    return "95 % interval" if name == "low" else name, "right" if numbers else "left"


def _texts(frame: pd.DataFrame, name: str) -> list[str]:
    """The cells of a column as strings."""
    values = frame[name].tolist()
    if name == "low":
        texts = _intervals(values, frame["high"].tolist())
        return texts if _has_signs(frame, "low") else [text.replace("+", "") for text in texts]
    if name == "q":
        return [corrected(value) for value in values]
    if frame[name].dtype == bool:
        return ["yes" if value else "no" for value in values]
    if not pd.api.types.is_float_dtype(frame[name]):
        return [str(value) for value in values]
    places = places_of(values)
    texts = [signed(value, places) for value in values]
    return texts if _has_signs(frame, name) else [text.lstrip("+") for text in texts]


def _intervals(low: list[float], high: list[float]) -> list[str]:
    places = places_of([*low, *high])
    return [interval_text(*ends, places) for ends in zip(low, high, strict=True)]


def _has_signs(frame: pd.DataFrame, name: str) -> bool:
    """Whether positive numbers have a sign: in columns of effects, or if some are negative."""
    effects = name in SIGNED or (name == "low" and bool(SIGNED & {*frame.columns}))
    return effects or bool((frame[name] < 0).any())
