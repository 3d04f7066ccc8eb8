"""Effects as text: the largest first at any number of prompts, with a mark where significant.

Whether an effect is significant depends on the number of prompts as much as on the model. Lines
therefore go by size, mean |effect|, and show it as a share of the metric; an asterisk marks cells
with q ≤ 0.05, and one line says how many of all cells have it.
"""

from collections.abc import Sequence

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from analyses.results.number_text import counted, fixed, number, percent, places_of, signed
from analyses.results.statistics import FEWEST, LEVEL

LARGE = 0.1
"""The share of the metric from which the size of an effect counts as large."""
MARK = "*"
"""Marks significant rows in summaries and tables."""


def largest_text(frame: pd.DataFrame, unit: str, cells: str, how: str) -> str:
    """The largest effect of all cells, and how many are large, as part of a sentence.

    Args:
        frame: as :func:`effect_frame` returns it, with the column ``name``.
        unit: unit of the effects.
        cells: what the cells are, in the plural.
        how: what is done to a cell, in brackets.
    """
    measured = frame[frame["size"] > 0]
    if measured.empty:
        return f"none of {len(frame)} {cells} has an effect ({how})"
    first = measured.iloc[0]
    number_of_cells = counted(len(frame), cells.removesuffix("s"))
    text = (
        f"largest effect of {number_of_cells} ({how}): {first['name']} "
        f"{effect_text(first['effect'], places_of_effects(frame), unit)}"
    )
    if "share" not in frame or frame["share"].isna().all():
        return text
    large = (frame["share"] >= LARGE).sum()
    return f"{text}; ≥ {percent(LARGE)} of the metric: {large} of {len(frame)}"


def effect_lines(frame: pd.DataFrame, unit: str, cells: str, top: int) -> list[str]:
    """Lines of a summary: the ``top`` largest cells, then what stands beside their effects.

    Args:
        frame: as :func:`effect_frame` returns it, with the column ``name``.
        unit: unit of the effects.
        cells: what the cells are, in the plural.
        top: the most cells to list.
    """
    largest, places = frame[frame["size"] > 0].head(top), places_of_effects(frame)
    names = marked_names(largest)
    width = max([6, *map(len, names)])
    has_shares = "share" in largest and bool(largest["share"].notna().any())
    lines = [
        f"{name:<{width}} {effect_text(row['effect'], places, unit)}"
        + bracketed(row["low"], row["high"], places)
        + (f"  {percent(row['share'])}" if has_shares else "")
        for name, row in zip(names, largest.to_dict("records"), strict=True)
    ]
    beside = [significance_text(frame, cells)]
    beside += ["%: mean |effect| / mean |metric|"] if has_shares else []
    return [*lines, "; ".join(beside)]


def marked_names(frame: pd.DataFrame) -> list[str]:
    """The names of cells, with a mark after those that are significant."""
    both = zip(frame["name"], frame["significant"], strict=True)
    return [f"{name} {MARK}" if significant else str(name) for name, significant in both]


def bracketed(low: float, high: float, places: int) -> str:
    """An interval in brackets, after two spaces; empty if there is none."""
    return f"  [{signed(low, places)}, {signed(high, places)}]" if low <= high else ""


def significance_text(frame: pd.DataFrame, cells: str) -> str:
    """What the mark of significant cells means, and how many of all cells have it."""
    if not frame["n"].max() >= FEWEST:
        return f"no intervals and no significance with fewer than {FEWEST} prompts"
    return f"{MARK} q ≤ {LEVEL}: {frame['significant'].sum()} of {len(frame)} {cells}"


def effect_text(effect: float, places: int, unit: str) -> str:
    """An effect with its unit, if it has one."""
    return f"{signed(effect, places)} {unit}".rstrip()


def named_effects(frame: pd.DataFrame, unit: str, places: int) -> str:
    """The effects of all rows, as part of a sentence: ``L2H1 (+0.52 nats) and L0H3 (−0.11 nats)``.

    Args:
        frame: some rows of what :func:`effect_frame` returns, with the column ``name``.
        unit: unit of the effects.
        places: the number of decimals.
    """
    notes = size_notes([*frame["effect"]], [*frame["size"]], places)
    *others, last = (
        f"{row['name']} ({effect_text(row['effect'], places, unit)}{note and f', {note}'})"
        for row, note in zip(frame.to_dict("records"), notes, strict=True)
    )
    return f"{', '.join(others)} and {last}" if others else last


def size_notes(effects: Sequence[float], sizes: Sequence[float], places: int) -> list[str]:
    """The mean size of each effect that is smaller than a later one; else ``""``.

    Effects that cancel over prompts have a mean far below their size, and would seem misplaced.

    Args:
        effects: means over prompts, in the order of their sizes.
        sizes: the mean of the absolute values of each.
        places: the number of decimals.
    """
    return [
        f"mean size {fixed(size, places)}"
        if any(abs(later) > abs(effect) for later in effects[number_of_effect + 1 :])
        else ""
        for number_of_effect, (effect, size) in enumerate(zip(effects, sizes, strict=True))
    ]


def places_of_effects(frame: pd.DataFrame, column: str = "effect") -> int:
    """The number of decimals of the effects of a table, and of their sizes and intervals."""
    columns = (column, "size", "low", "high")
    return places_of(value for name in columns if name in frame for value in frame[name])


def metric_text(name: str, values: Float[Tensor, " prompt"], unit: str, noun: str) -> str:
    """The mean of a metric over its prompts: ``loss 3.77 nats on 24 prompts``."""
    mean = number(values.nanmean().item())
    return f"{name} {mean} {unit} on {counted(len(values), noun)}"
