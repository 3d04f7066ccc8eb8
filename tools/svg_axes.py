"""Axes, labels and lines of a figure as SVG."""

from collections.abc import Callable, Sequence
from html import unescape
from math import isfinite, log10
from typing import Any
from xml.sax.saxutils import escape

import plotly.graph_objects as go

WIDTH, TOP, RIGHT = 720, 56, 96
"""Width of the drawing, and of its top and right margins; the others depend on the labels."""
CHARACTER = 7
"""Width of a character, in pixels."""
MAX_LABEL = 28
"""Largest number of characters of a label."""
ROUND = 1000
"""Smallest number that is written without decimals, and not as a power of ten."""
INK, SOFT, LINE = "#1f2430", "#5b6372", "#c9ced8"


class Scale:
    """A map from values to pixels, linear or logarithmic."""

    def __init__(
        self, values: Sequence[float], start: float, end: float, *, log: bool = False
    ) -> None:
        finite = [float(value) for value in values if value is not None and isfinite(value)]
        self.ends = (min(finite, default=0.0), max(finite, default=1.0))
        self._of: Callable[[float], float] = log10 if log else float
        self._start, self._pixels = start, end - start
        self._first = self._of(self.ends[0])
        self._length = (self._of(self.ends[1]) - self._first) or 1.0

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        return self._start + self._pixels * (self._of(value) - self._first) / self._length


def axis_labels(axis: Any) -> list[str]:  # noqa: ANN401 - plotly has no types
    """The labels of an axis, cut to ``MAX_LABEL`` characters."""
    return [as_read(label)[:MAX_LABEL] for label in axis.ticktext]


def left_margin(labels: Sequence[str]) -> float:
    """The left edge of a plot with these row labels."""
    return 34 + CHARACTER * max(map(len, labels), default=0)


def row_labels(labels: Sequence[str], left: float, ys: Sequence[float], down: float) -> list[str]:
    """Labels of rows; only every second, third, … one if the rows are crowded."""
    step = max(1, round(14 / down))
    return [
        drawn_text(left - 6, y + 4, label, side="end")
        for label, y in zip(labels[::step], ys[::step], strict=True)
    ]


def labels_below(
    labels: Sequence[str], xs: Sequence[float], bottom: float
) -> tuple[list[str], float]:
    """Labels of columns, rotated if one is wider than a column; and their lower edge."""
    across = xs[1] - xs[0] if len(xs) > 1 else WIDTH
    longest = max(map(len, labels), default=0) * CHARACTER
    rotated = longest > across
    step = max(1, round((14 if rotated else 0) / across))
    parts = [
        drawn_text(x + 4, bottom + 8, label, side="end", turned=True)
        if rotated
        else drawn_text(x, bottom + 16, label, side="middle")
        for label, x in zip(labels[::step], xs[::step], strict=True)
    ]
    return parts, bottom + 8 + (longest if rotated else 8)


def ticks_below(scale: Scale, bottom: float) -> list[str]:
    """The numbers at both ends of an axis, and 0 between them."""
    low, high = scale.ends
    zero = [drawn_text(scale(0.0), bottom + 16, "0", side="middle")] if low < 0 < high else []
    return [
        drawn_text(scale(low), bottom + 16, as_number(low), side="middle"),
        *zero,
        *(
            [drawn_text(scale(high), bottom + 16, as_number(high), side="end")]
            if high > low
            else []
        ),
    ]


def as_number(value: float) -> str:
    """A number with three significant digits, or with all digits before the decimal point."""
    return f"{value:.0f}" if abs(value) >= ROUND else f"{value:.3g}"


def axis_titles(figure: go.Figure, left: float, bottom: float, end: float) -> list[str]:
    """The titles of both axes; the labels below the figure end at ``end``."""
    layout = figure.layout
    across, down = as_read(layout.xaxis.title.text), as_read(layout.yaxis.title.text)
    middle = (left + WIDTH - RIGHT) / 2
    return [
        drawn_text(middle, end + 20, across, side="middle"),
        drawn_text(16, (TOP + bottom) / 2, down, side="middle", turned=True),
    ]


def drawn_text(  # noqa: PLR0913, PLR0917 - where, what, and how it looks
    x: float,
    y: float,
    text: str,
    side: str = "start",
    size: int = 12,
    colour: str = SOFT,
    turned: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """A text that starts, ends or is centred at a point (``side``)."""
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" '
        f'text-anchor="{side}"{turn}>{escape(text)}</text>'
    )


def drawn_line(
    x1: float, y1: float, x2: float, y2: float, colour: str, *, dotted: bool = False
) -> str:
    """A line between two points."""
    dots = ' stroke-dasharray="2 3"' if dotted else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="1.5"{dots}/>'
    )


def as_read(text: str | None) -> str:
    """The text of a label of Plotly, which is escaped for HTML."""
    return unescape(text or "")
