"""Strip plot of the effects of heads over prompts, as SVG: one dot per prompt on a shared axis.

Positions are percentages, so the plot fits the width of the page without scaling its text, and
needs no script.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan

from analyses.results import signed
from apps.wording import HeadEffect

MARGIN = 0.04
"""Margin at both ends of the axis, as a fraction of its length."""
DOT_LEVELS = 5
"""Number of heights that dots alternate between, so that equal values do not overlap."""


@dataclass(frozen=True)
class Dot:
    """One prompt: position, index and tooltip."""

    x: str
    y: int
    prompt: int
    text: str


@dataclass(frozen=True)
class Row:
    """One head: its dots, mean and interval, if it has one."""

    name: str
    significant: bool
    mean: str
    interval: tuple[str, str] | None
    text: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True)
class Tick:
    """A number on the axis, with its text anchor."""

    x: str
    text: str
    anchor: str


@dataclass(frozen=True)
class StripPlot:
    """Rows on one axis, the position of zero, and the ticks."""

    rows: tuple[Row, ...]
    zero: str
    ticks: tuple[Tick, ...]


def strip_plot(
    heads: Sequence[HeadEffect], values: Mapping[str, Sequence[float]], unit: str, places: int
) -> StripPlot:
    """The strip plot of some heads.

    Args:
        heads: the heads, from top to bottom.
        values: the effects of each head by its name, one per prompt.
        unit: the unit of the effects.
        places: number of decimals.
    """
    ends = [end for head in heads for end in (head.low, head.high) if not isnan(end)]
    drawn = [0.0, *ends, *(x for row in values.values() for x in row)]
    least, most = min(drawn), max(drawn)
    length = (most - least) or 1.0
    start, width = least - MARGIN * length, length * (1 + 2 * MARGIN)

    def percent(x: float) -> str:
        return f"{100 * (x - start) / width:.2f}%"

    rows = tuple(
        Row(
            head.name,
            head.significant,
            percent(head.effect),
            None if isnan(head.low) else (percent(head.low), percent(head.high)),
            f"{head.name}: mean {signed(head.effect, places)} {unit}",
            tuple(
                Dot(
                    percent(x),
                    8 + 4 * (index * 2 % DOT_LEVELS),
                    index,
                    f"prompt {index}: {signed(x, places)} {unit}",
                )
                for index, x in enumerate(values[head.name])
            ),
        )
        for head in heads
    )
    marks = [(0.0, "middle"), (least, "start"), (most, "end")]
    # An end close to zero is not labelled, since its label would overlap that of zero.
    labelled = [(x, side) for x, side in marks if side == "middle" or abs(x) > length / 8]
    ticks = tuple(Tick(percent(x), signed(x, places), side) for x, side in labelled)
    return StripPlot(rows, percent(0.0), ticks)
