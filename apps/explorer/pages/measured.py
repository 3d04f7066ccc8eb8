"""Effects as far as they are known: all estimated first, then the largest measured, then all.

An estimate is never shown as a measurement: it is hatched, and a line says how the estimates agree
with what has been measured.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import isnan, nan

import pandas as pd

import interp
from analyses import Ablation, ActivationPatching
from analyses.results import Result, counted, fixed, number
from apps.explorer.page import Ask, ask, in_turn
from apps.explorer.questions import Question
from apps.explorer.store import stored
from apps.explorer.validate import heads_of
from apps.explorer.view import View

FEW, FIRST = 32, 10
"""Numbers of heads up to which there is no preview, and of the cells that are measured first."""
HATCHED = "hatched: estimated to first order, not measured yet"
Effects = Ablation | ActivationPatching
"""Results that may be estimates, with a row for each cell in their tables."""


def is_previewed(view: View, model: interp.Transformer) -> bool:
    """Whether sweeps have a preview: not those of few heads, whose effects are measured as soon."""
    return sum(heads_of(view, model)) > FEW


def sweep_asks(
    name: str, make: Callable[[dict[str, object]], Question], *, of: str = "", preview: bool
) -> list[Ask]:
    """The questions of a sweep in turn: estimates and the largest effects if previewed, then all.

    Args:
        name: the name of the sweep.
        make: function from more settings, ``estimate`` or ``largest``, to the question.
        of: what the names of the first two end with, if there are several sweeps.
        preview: whether it has a preview.
    """
    first: dict[str, dict[str, object]] = {
        f"estimates{of}": {"estimate": True},
        f"largest effects{of}": {"largest": FIRST},
    }
    every: dict[str, dict[str, object]] = {**(first if preview else {}), name: {}}
    return in_turn(
        [ask(each, partial(make, settings), long=True) for each, settings in every.items()]
    )


@stored
def table_of(result: Result) -> pd.DataFrame:
    """The table of a result, stored because its intervals are the slowest part of a page."""
    return result.to_frame()


def known_effects(
    results: Sequence[Effects],
    cells: int,
    unit: str,
    cell: str,
    rows: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame,
) -> tuple[pd.DataFrame, list[str]]:
    """The effect of each cell: measured, else estimated; cells with neither are missing.

    Args:
        results: results of one sweep: of all cells, possibly partial or estimated, or of a few.
        cells: the number of cells.
        unit: the unit of the effects.
        cell: what a cell is, in words.
        rows: function that selects rows of the tables.

    Returns:
        A table with the column ``is_measured``, without intervals of estimates; and lines on which
        are estimates, and how these agree with the measured effects.
    """
    frames = {result: rows(table_of(result)) for result in results}
    measured = [frame for result, frame in frames.items() if not result.is_estimate]
    estimated = [frame for result, frame in frames.items() if result.is_estimate]
    every = pd.concat([*measured, *estimated], keys=[*range(len(frames))]).dropna(subset="effect")
    is_measured = every.index.get_level_values(0) < len(measured)
    frame = every.assign(is_measured=is_measured).drop_duplicates("name")
    frame.loc[~frame["is_measured"], ["low", "high"]] = nan
    exact = frame[frame["is_measured"]]
    lines = [HATCHED] if estimated and len(exact) < cells else []
    if estimated and len(exact):
        lines.append(agreement(exact, estimated[0], unit, cell))
    return frame, lines


def agreement(measured: pd.DataFrame, estimated: pd.DataFrame, unit: str, cell: str) -> str:
    """How the estimates compare with the effects measured so far, with the largest miss.

    Args:
        measured: a table with the columns name and effect.
        estimated: likewise.
        unit: the unit of the effects.
        cell: what has the effects, in words.
    """
    both = measured.merge(estimated, on="name", suffixes=("", "_estimated"))
    miss = both["effect_estimated"] - both["effect"]
    worst = both.iloc[int(miss.abs().to_numpy().argmax())]
    correlation = both["effect"].corr(both["effect_estimated"])
    r = "" if isnan(correlation) else f"r = {fixed(correlation, 2)}, "
    return (
        f"estimates of {counted(len(both), cell)} against their measured effects: {r}"
        f"largest miss {worst['name']} ({number(worst['effect_estimated'], 2, sign=True)} for "
        f"{number(worst['effect'], 2, sign=True)} {unit})"
    )


def sentences(lines: Sequence[str]) -> str:
    """Lines of a note as sentences, each with a space after it."""
    return "".join(f"{line[0].upper()}{line[1:]}. " for line in lines)
