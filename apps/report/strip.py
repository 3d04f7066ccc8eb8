"""How does a head's effect spread over prompts? A dot a prompt on a shared axis, as SVG.

Positions are percentages, so that a strip is as wide as the page and its text as large as ever;
no script is needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apps.wording import Head, signed

MARGIN = 0.04
"""Room left at both ends of the axis, as a share of its length."""
ROWS_OF_DOTS = 5
"""Dots are put on several heights, so that equal values stay apart."""


@dataclass(frozen=True)
class Dot:
    """One prompt: where it is drawn, which it is and what it says."""

    x: str
    y: int
    prompt: int
    text: str


@dataclass(frozen=True)
class Row:
    """One head: its dots, its mean and its interval."""

    name: str
    matters: bool
    mean: str
    low: str
    high: str
    text: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True)
class Tick:
    """A number on the axis."""

    x: str
    text: str
    anchor: str


@dataclass(frozen=True)
class Strip:
    """All rows on one axis."""

    rows: tuple[Row, ...]
    zero: str
    ticks: tuple[Tick, ...]


def strips(
    heads: Sequence[Head], values: Mapping[str, Sequence[float]], unit: str, places: int
) -> Strip:
    """The strips of some heads.

    Args:
        heads: in the order they are shown.
        values: each head's effects, one a prompt.
        unit: of the effects.
        places: decimals.
    """
    everything = [0.0, *(x for row in values.values() for x in row)]
    least, most = min(everything), max(everything)
    length = (most - least) or 1.0
    start, whole = least - MARGIN * length, length * (1 + 2 * MARGIN)

    def at(x: float) -> str:
        return f"{100 * (x - start) / whole:.2f}%"

    rows = tuple(
        Row(
            head.name,
            head.matters,
            at(head.effect),
            at(head.low),
            at(head.high),
            f"{head.name}: mean {signed(head.effect, places)} {unit}",
            tuple(
                Dot(
                    at(x),
                    8 + 4 * (index * 2 % ROWS_OF_DOTS),
                    index,
                    f"prompt {index}: {signed(x, places)} {unit}",
                )
                for index, x in enumerate(values[head.name])
            ),
        )
        for head in heads
    )
    ends = [(0.0, "middle"), (least, "start"), (most, "end")]
    apart = [(x, side) for x, side in ends if side == "middle" or abs(x) > length / 8]
    ticks = tuple(Tick(at(x), signed(x, places), side) for x, side in apart)
    return Strip(rows, at(0.0), ticks)
