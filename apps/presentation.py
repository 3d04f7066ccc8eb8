"""Results in words and short tables, for the terminal and the report.

What holds of any result stands here; a kind of result that has better words registers them.
"""

import sys
from functools import singledispatch

from analyses import HeadAblation, LogitLens
from analyses.result import Result
from apps import wording
from apps.frame_table import Table, table_of_frame
from interp.execution.provenance import Provenance


@singledispatch
def table(result: Result, top: int | None = None) -> Table:
    """A table of the first ``top`` rows of the result's frame, or of all."""
    return table_of_frame(result.to_frame(), top)


@singledispatch
def conclusion(result: Result) -> str:
    """What was found: the first line of the summary, and what a reader should know of it."""
    first = result.summary().splitlines()[0].removesuffix(".")
    return " ".join([f"{first[0].upper()}{first[1:]}.", *getattr(result, "notes", ())])


def question(result: Result) -> str:
    """The question that the analysis answers: how its module begins."""
    return explanation(result).split("?")[0].replace("\n", " ") + "?"


def explanation(result: Result) -> str:
    """The question, the equation, its source and what the numbers can't show."""
    return (sys.modules[type(result).__module__].__doc__ or f"{type(result).__name__}?").strip()


def provenance_of(result: Result) -> Provenance:
    """What the numbers depend on."""
    found = getattr(result, "provenance", None)
    if not isinstance(found, Provenance):
        raise TypeError(f"A {type(result).__name__} has no provenance.")
    return found


# ---- kinds of results that have their own words ----------------------------------------------


@table.register
def _(result: HeadAblation, top: int | None = None) -> Table:
    return wording.head_table(result, top)


@conclusion.register
def _(result: HeadAblation) -> str:
    return wording.conclusion(result)


@table.register
def _(result: LogitLens, top: int | None = None) -> Table:
    """The mean over all tokens at each place; of the target, over the last tokens."""
    frame = result.to_frame()
    means = {"entropy": "mean", "kl": "mean"}
    found = frame.groupby(["layer", "point"], sort=False).agg(means)
    if result.rank is not None:
        last = frame["pos"] == frame.groupby("prompt")["pos"].transform("max")
        means = {"rank": "mean", "target_probability": "mean"}
        found = found.join(frame[last].groupby(["layer", "point"]).agg(means))
    return table_of_frame(found.reset_index(), top)
