"""A figure of an analysis as SVG, without a browser: heatmaps, bars and curves.

A page in Markdown can show neither Plotly's JavaScript nor, without a browser, its pictures. What
is drawn here has the figure's own numbers, labels and colours, and less of everything else.
"""

from collections.abc import Callable, Sequence
from html import unescape
from math import isfinite, log10
from textwrap import wrap
from typing import Any
from xml.sax.saxutils import escape

import plotly.graph_objects as go
from plotly.colors import sample_colorscale

WIDTH, TOP, RIGHT = 720, 56, 96
"""Of the picture, and of its margins; the others are as wide as their labels."""
CHARACTER = 7
"""Width of a character, in pixels."""
MAX_LABEL, MAX_TITLE = 28, 96
"""Characters of a label, and of a line of the title."""
HEIGHT = 300
"""Of a plot of curves; heatmaps and bars are as high as their rows."""
INK, SOFT, LINE, MISSING = "#1f2430", "#5b6372", "#c9ced8", "#e3e6ec"


def figure_svg(figure: go.Figure) -> str:
    """The figure as an SVG document.

    Raises:
        TypeError: its first trace is no heatmap, bar or curve.
    """
    drawing = {"heatmap": _heatmap, "bar": _bars, "scatter": _curves, "network": _network}
    kind = figure.data[0].type
    if any("text" in (trace.mode or "") for trace in figure.select_traces({"type": "scatter"})):
        kind = "network"
    if kind not in drawing:
        raise TypeError(f"No drawing of a {kind}; there are {', '.join(drawing)}.")
    parts, height = drawing[kind](figure)
    lines = wrap(_plain(figure.layout.title.text), MAX_TITLE)[:2]
    title = [_text(8, 18 + 16 * row, line, size=14, colour=INK) for row, line in enumerate(lines)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" font-family="system-ui, sans-serif">',
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
            *title,
            *parts,
            "</svg>\n",
        ]
    )


# ---- heatmaps --------------------------------------------------------------------------------


def _heatmap(figure: go.Figure) -> tuple[list[str], int]:
    trace, rows = figure.data[0], len(figure.data[0].z)
    columns = len(trace.z[0])
    labels = _labels(figure.layout.yaxis)
    left = _margin(labels)
    across = (WIDTH - left - RIGHT) / columns
    down = max(8.0, min(26.0, 420 / rows))
    parts = [
        f'<rect x="{left + column * across:.1f}" y="{TOP + row * down:.1f}" '
        f'width="{across:.1f}" height="{down:.1f}" fill="{colour}"/>'
        for row, colours in enumerate(_colours(trace))
        for column, colour in enumerate(colours)
    ]
    bottom = TOP + rows * down
    parts += _texts(trace, left, across, down)
    parts += _rows(labels, left, [TOP + (row + 0.5) * down for row in range(rows)], down)
    xs = [left + (column + 0.5) * across for column in range(columns)]
    below, end = _below(_labels(figure.layout.xaxis), xs, bottom)
    parts += [*below, *_titles(figure, left, bottom, end)]
    return [*parts, *_colour_bar(trace)], round(max(end, TOP + 110) + 32)


def _texts(trace: Any, left: float, across: float, down: float) -> list[str]:  # noqa: ANN401
    """What is written in the cells, as far as there is space for it."""
    fits = int(across / CHARACTER)
    return [
        _text(
            left + (column + 0.5) * across,
            TOP + (row + 0.7) * down,
            _plain(own)[:fits],
            "middle",
            size=10,
            colour=_readable(colour),
        )
        for row, (texts, colours) in enumerate(zip(trace.text or [], _colours(trace), strict=False))
        for column, (own, colour) in enumerate(zip(texts, colours, strict=True))
        if own
    ]


def _readable(colour: str) -> str:
    """Black or white, whichever is readable on a colour."""
    if colour == MISSING:
        return INK
    red, green, blue = (float(part) for part in colour.strip("rgb()").split(","))
    return INK if 0.3 * red + 0.6 * green + 0.1 * blue > 128 else "white"  # noqa: PLR2004


def _colours(trace: Any) -> list[list[str]]:  # noqa: ANN401 - plotly has no types
    """The colour of each cell."""
    low, length = trace.zmin, trace.zmax - trace.zmin
    return [
        [
            MISSING
            if value is None or not isfinite(value)
            else _colour(trace, (value - low) / length)
            for value in row
        ]
        for row in trace.z
    ]


def _colour(trace: Any, part: float) -> str:  # noqa: ANN401 - plotly has no types
    """The colour at a part of the scale, from 0 to 1."""
    scale = [list(pair) for pair in trace.colorscale]
    return sample_colorscale(scale, min(1.0, max(0.0, part)))[0]


def _colour_bar(trace: Any) -> list[str]:  # noqa: ANN401 - plotly has no types
    """The colours from top to bottom, the numbers at both ends, and the unit."""
    x, height, steps = WIDTH - RIGHT + 24, 100, 25
    parts = [
        f'<rect x="{x}" y="{TOP + height * step / steps:.1f}" width="12" '
        f'height="{height / steps + 0.5:.1f}" '
        f'fill="{_colour(trace, 1 - (step + 0.5) / steps)}"/>'
        for step in range(steps)
    ]
    for value, y in ((trace.zmax, TOP + 8), (trace.zmin, TOP + height)):
        parts.append(_text(x + 16, y, f"{value:.3g}"))
    return [*parts, _text(x, TOP - 6, _plain(trace.colorbar.title.text))]


# ---- bars ------------------------------------------------------------------------------------


def _bars(figure: go.Figure) -> tuple[list[str], int]:
    trace, down = figure.data[0], 20
    labels, values = _labels(figure.layout.yaxis), list(trace.x)
    over, under = (_ends(trace.error_x, name, values) for name in ("array", "arrayminus"))
    ends = [x + e for x, e in zip(values, over, strict=True)]
    starts = [x - e for x, e in zip(values, under, strict=True)]
    left = _margin(labels)
    scale = _Scale([0.0, *values, *ends, *starts], left, WIDTH - 24)
    bottom = TOP + down * len(values)
    parts: list[str] = []
    for row, (value, start, end) in enumerate(zip(values, starts, ends, strict=True)):
        first, last = sorted((scale(0.0), scale(value)))
        y = TOP + row * down
        parts += [
            f'<rect x="{first:.1f}" y="{y + 3}" width="{last - first:.1f}" height="{down - 6}" '
            f'fill="{trace.marker.color}"/>',
            _line(scale(start), y + down / 2, scale(end), y + down / 2, INK),
        ]
    parts += [_line(scale(0.0), TOP, scale(0.0), bottom, SOFT)]
    parts += _rows(labels, left, [TOP + (row + 0.5) * down for row in range(len(values))], down)
    parts += _ticks_below(scale, bottom)
    return [*parts, *_titles(figure, left, bottom, bottom + 16)], round(bottom + 48)


def _ends(error: Any, name: str, values: Sequence[float]) -> list[float]:  # noqa: ANN401
    """The length of each bar's interval on one side; 0 where there is none."""
    lengths = error[name]
    if lengths is None:
        return [0.0] * len(values)
    return [x if x is not None and isfinite(x) else 0.0 for x in lengths]


# ---- curves ----------------------------------------------------------------------------------


def _curves(figure: go.Figure) -> tuple[list[str], int]:
    """Each panel with its lines; a legend below."""
    axes = sorted({trace.yaxis or "y" for trace in figure.data}, key=lambda name: name[1:])
    lowest = [x for trace in figure.data for x in trace.x]
    across = _Scale(lowest, 70, WIDTH - 24, log=figure.layout.xaxis.type == "log")
    parts: list[str] = []
    for panel, axis in enumerate(axes):
        traces = [trace for trace in figure.data if (trace.yaxis or "y") == axis]
        top = TOP + panel * (HEIGHT + 24)
        up = _Scale([y for trace in traces for y in trace.y], top + HEIGHT, top)
        parts += [_line(70, top + HEIGHT, WIDTH - 24, top + HEIGHT, LINE)]
        for value in up.ends:
            parts.append(_text(64, up(value) + 4, f"{value:.3g}", side="end"))
        for trace in traces:
            points = " ".join(
                f"{across(x):.1f},{up(y):.1f}" for x, y in zip(trace.x, trace.y, strict=True)
            )
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{trace.line.color}" '
                'stroke-width="1.5"/>'
            )
        named = figure.layout["yaxis" + axis[1:]].title.text
        parts.append(_text(70, top - 4, _plain(named)))
    bottom = TOP + len(axes) * (HEIGHT + 24) - 24
    parts += _ticks_below(across, bottom)
    for row, trace in enumerate(figure.data):
        y = bottom + 44 + 18 * row
        parts += [_line(70, y - 4, 90, y - 4, trace.line.color), _text(96, y, _plain(trace.name))]
    return parts, round(bottom + 56 + 18 * len(figure.data))


# ---- graphs ----------------------------------------------------------------------------------


def _network(figure: go.Figure) -> tuple[list[str], int]:
    """Lines between nodes, as wide as the figure's; nodes with their names."""
    *edges, labels, nodes = figure.data
    height = 90 * len(set(nodes.y))
    across = _Scale(list(nodes.x), 40, WIDTH - 40)
    up = _Scale(list(nodes.y), TOP + height, TOP + 24)
    parts = [
        f'<line x1="{across(edge.x[0]):.1f}" y1="{up(edge.y[0]):.1f}" '
        f'x2="{across(edge.x[-1]):.1f}" y2="{up(edge.y[-1]):.1f}" '
        f'stroke="{edge.line.color}" stroke-width="{edge.line.width:.1f}" opacity="0.75"/>'
        for edge in edges
    ]
    for x, y, name in zip(nodes.x, nodes.y, nodes.text, strict=True):
        parts += [
            f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="19" fill="white" '
            f'stroke="{nodes.marker.line.color}" stroke-width="1.5"/>',
            _text(across(x), up(y) + 4, _plain(name), side="middle", size=10, colour=INK),
        ]
    for x, y, label in zip(labels.x, labels.y, labels.text, strict=True):
        parts.append(_text(across(x), up(y) + 4, _plain(label), side="middle", size=9))
    notes = [_plain(one.text) for one in figure.layout.annotations]
    parts += [_text(8, TOP + height + 48 + 16 * row, note) for row, note in enumerate(notes)]
    return parts, TOP + height + 48 + 16 * len(notes)


# ---- axes and labels -------------------------------------------------------------------------


class _Scale:
    """From values to pixels."""

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
        return self._start + self._pixels * (self._of(value) - self._first) / self._length


def _labels(axis: Any) -> list[str]:  # noqa: ANN401 - plotly has no types
    return [_plain(label)[:MAX_LABEL] for label in axis.ticktext]


def _margin(labels: Sequence[str]) -> float:
    return 34 + CHARACTER * max(map(len, labels), default=0)


def _rows(labels: Sequence[str], left: float, ys: Sequence[float], down: float) -> list[str]:
    """Labels of rows; of crowded rows every second, third, …."""
    step = max(1, round(14 / down))
    return [
        _text(left - 6, y + 4, label, side="end")
        for label, y in zip(labels[::step], ys[::step], strict=True)
    ]


def _below(labels: Sequence[str], xs: Sequence[float], bottom: float) -> tuple[list[str], float]:
    """Labels of columns, upright where they are longer than a column is wide; where they end."""
    across = xs[1] - xs[0] if len(xs) > 1 else WIDTH
    longest = max(map(len, labels), default=0) * CHARACTER
    upright = longest > across
    step = max(1, round((14 if upright else 0) / across))
    parts = [
        _text(x + 4, bottom + 8, label, side="end", turned=True)
        if upright
        else _text(x, bottom + 16, label, side="middle")
        for label, x in zip(labels[::step], xs[::step], strict=True)
    ]
    return parts, bottom + 8 + (longest if upright else 8)


def _ticks_below(scale: _Scale, bottom: float) -> list[str]:
    ends = {*scale.ends, *([0.0] if scale.ends[0] < 0 < scale.ends[1] else [])}
    return [_text(scale(x), bottom + 16, f"{x:.3g}", side="middle") for x in sorted(ends)]


def _titles(figure: go.Figure, left: float, bottom: float, end: float) -> list[str]:
    """The titles of both axes; the labels below the figure end at ``end``."""
    layout = figure.layout
    across, down = _plain(layout.xaxis.title.text), _plain(layout.yaxis.title.text)
    middle = (left + WIDTH - RIGHT) / 2
    return [
        _text(middle, end + 20, across, side="middle"),
        _text(16, (TOP + bottom) / 2, down, side="middle", turned=True),
    ]


def _text(  # noqa: PLR0913, PLR0917 - where, what, and how it looks
    x: float,
    y: float,
    text: str,
    side: str = "start",
    size: int = 12,
    colour: str = SOFT,
    turned: bool = False,  # noqa: FBT001, FBT002
) -> str:
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" '
        f'text-anchor="{side}"{turn}>{escape(text)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        'stroke-width="1.5"/>'
    )


def _plain(text: str | None) -> str:
    """A label as it reads: Plotly's are escaped for HTML."""
    return unescape(text or "")
