"""Figures of analyses as SVG, drawn without a browser: heatmaps, bars, curves and graphs.

Plotly needs JavaScript or a browser to draw a figure, which a page in Markdown does not have. The
drawings of this module have the figure's own numbers, labels and colours, and fewer details.
"""

from collections.abc import Sequence
from itertools import groupby
from math import isfinite
from operator import itemgetter
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from tools.svg_axes import (
    CHARACTER,
    INK,
    LINE,
    RIGHT,
    SOFT,
    TOP,
    WIDTH,
    Scale,
    as_number,
    as_read,
    axis_labels,
    axis_titles,
    drawn_line,
    drawn_text,
    labels_below,
    left_margin,
    row_labels,
    ticks_below,
)

MAX_TITLE = 96
"""Largest number of characters in a line of the title."""
HEIGHT = 300
"""Height of a panel of curves; the height of heatmaps and bars depends on their rows."""
MISSING = "#e3e6ec"


def figure_svg(figure: go.Figure) -> str:
    """The figure as an SVG document.

    Raises:
        TypeError: there is no drawing for the kind of its first trace.
    """
    drawing = {"heatmap": _heatmap, "bar": _bars, "scatter": _curves, "network": _network}
    kind = figure.data[0].type
    if any("text" in (trace.mode or "") for trace in figure.select_traces({"type": "scatter"})):
        kind = "network"
    if kind not in drawing:
        raise TypeError(f"No drawing of a {kind}; there are {', '.join(drawing)}.")
    parts, height = drawing[kind](figure)
    lines = wrap(as_read(figure.layout.title.text), MAX_TITLE)[:2]
    title = [
        drawn_text(8, 18 + 16 * row, line, size=14, colour=INK) for row, line in enumerate(lines)
    ]
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
    labels = axis_labels(figure.layout.yaxis)
    left = left_margin(labels)
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
    parts += row_labels(labels, left, [TOP + (row + 0.5) * down for row in range(rows)], down)
    xs = [left + (column + 0.5) * across for column in range(columns)]
    below, end = labels_below(axis_labels(figure.layout.xaxis), xs, bottom)
    parts += [*below, *axis_titles(figure, left, bottom, end)]
    return [*parts, *_colour_bar(trace)], round(max(end, TOP + 110) + 32)


def _texts(trace: Any, left: float, across: float, down: float) -> list[str]:  # noqa: ANN401
    """The texts of the cells, cut to the width of a cell."""
    fits = int(across / CHARACTER)
    return [
        drawn_text(
            left + (column + 0.5) * across,
            TOP + (row + 0.7) * down,
            as_read(own)[:fits],
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
        parts.append(drawn_text(x + 16, y, as_number(value)))
    unit = as_read(trace.colorbar.title.text)
    if CHARACTER * len(unit) > RIGHT - 24:
        return [*parts, drawn_text(WIDTH - 8, TOP - 6, unit, side="end")]
    return [*parts, drawn_text(x, TOP - 6, unit)]


# ---- bars ------------------------------------------------------------------------------------


def _bars(figure: go.Figure) -> tuple[list[str], int]:
    trace, down = figure.data[0], 20
    labels, values = axis_labels(figure.layout.yaxis), list(trace.x)
    over, under = (_ends(trace.error_x, name, values) for name in ("array", "arrayminus"))
    ends = [x + e for x, e in zip(values, over, strict=True)]
    starts = [x - e for x, e in zip(values, under, strict=True)]
    left = left_margin(labels)
    scale = Scale([0.0, *values, *ends, *starts], left, WIDTH - 24)
    bottom = TOP + down * len(values)
    parts: list[str] = []
    for row, (value, start, end) in enumerate(zip(values, starts, ends, strict=True)):
        first, last = sorted((scale(0.0), scale(value)))
        y = TOP + row * down
        parts += [
            f'<rect x="{first:.1f}" y="{y + 3}" width="{last - first:.1f}" height="{down - 6}" '
            f'fill="{trace.marker.color}"/>',
            drawn_line(scale(start), y + down / 2, scale(end), y + down / 2, INK),
        ]
    parts += [drawn_line(scale(0.0), TOP, scale(0.0), bottom, SOFT)]
    parts += row_labels(
        labels, left, [TOP + (row + 0.5) * down for row in range(len(values))], down
    )
    parts += ticks_below(scale, bottom)
    return [*parts, *axis_titles(figure, left, bottom, bottom + 16)], round(bottom + 48)


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
    across = Scale(lowest, 70, WIDTH - 24, log=figure.layout.xaxis.type == "log")
    parts: list[str] = []
    for panel, axis in enumerate(axes):
        traces = [trace for trace in figure.data if (trace.yaxis or "y") == axis]
        top = TOP + panel * (HEIGHT + 24)
        up = Scale([y for trace in traces for y in trace.y], top + HEIGHT, top)
        parts += [drawn_line(70, top + HEIGHT, WIDTH - 24, top + HEIGHT, LINE)]
        for value in up.ends:
            parts.append(drawn_text(64, up(value) + 4, as_number(value), side="end"))
        for trace in traces:
            pixels = [(across(x), up(y)) for x, y in zip(trace.x, trace.y, strict=True)]
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in _thinned(pixels))
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{trace.line.color}" '
                'stroke-width="1.5"/>'
            )
        named = figure.layout["yaxis" + axis[1:]].title.text
        parts.append(drawn_text(70, top - 4, as_read(named)))
    bottom = TOP + len(axes) * (HEIGHT + 24) - 24
    parts += [
        drawn_line(across(x), TOP, across(x), bottom, LINE, dotted=True)
        for x in (figure.layout.meta or {}).get("marked", ())
    ]
    parts += ticks_below(across, bottom)
    named = figure.layout[f"xaxis{len(axes) if len(axes) > 1 else ''}"].title.text
    parts.append(drawn_text((70 + WIDTH - 24) / 2, bottom + 16, as_read(named), side="middle"))
    for row, trace in enumerate(figure.data):
        y = bottom + 44 + 18 * row
        parts += [
            drawn_line(70, y - 4, 90, y - 4, trace.line.color),
            drawn_text(96, y, as_read(trace.name)),
        ]
    return parts, round(bottom + 56 + 18 * len(figure.data))


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The highest and the lowest point of a curve at each horizontal pixel."""
    kept: list[tuple[float, float]] = []
    for _, group in groupby(points, key=lambda point: round(point[0])):
        own = list(group)
        ends = {min(own, key=itemgetter(1)), max(own, key=itemgetter(1))}
        kept += sorted(ends, key=own.index)
    return kept


# ---- graphs ----------------------------------------------------------------------------------


def _network(figure: go.Figure) -> tuple[list[str], int]:
    """Nodes with their names, and lines between them with the widths of the figure."""
    *edges, labels, nodes = figure.data
    height = 90 * len(set(nodes.y))
    across = Scale(list(nodes.x), 40, WIDTH - 40)
    up = Scale(list(nodes.y), TOP + height, TOP + 24)
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
            drawn_text(across(x), up(y) + 4, as_read(name), side="middle", size=10, colour=INK),
        ]
    for x, y, label in zip(labels.x, labels.y, labels.text, strict=True):
        parts.append(drawn_text(across(x), up(y) + 4, as_read(label), side="middle", size=9))
    notes = [as_read(one.text) for one in figure.layout.annotations]
    parts += [drawn_text(8, TOP + height + 48 + 16 * row, note) for row, note in enumerate(notes)]
    return parts, TOP + height + 48 + 16 * len(notes)
