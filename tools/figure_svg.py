"""Figures of analyses as SVG, drawn by matplotlib: heatmaps, bars, curves and graphs.

Plotly needs JavaScript or a browser to draw a figure, which a page in Markdown does not have. The
drawings have the figure's own numbers, labels and colours, and fewer details; equal figures give
equal bytes.
"""

from collections.abc import Callable, Sequence
from html import unescape
from io import StringIO
from textwrap import wrap
from typing import Any, NamedTuple, cast

import matplotlib as mpl
import numpy as np
import plotly.graph_objects as go
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from plotly.colors import sample_colorscale, unlabel_rgb

from analyses.results import FAINT, FONT, number

INCH, WIDTH = 96, 720
"""Pixels of an inch, and of the width of a drawing."""
CHARACTER, LINE, BAR = 7, 14, 110
"""Width of a character, height of a line, and that of the bar of colours, in pixels."""
MAX_TITLE, MAX_LABEL = 88, 28
"""Largest number of characters in a line of the title, and of a label."""
NAMED = 3
"""Number of points with the largest values on an axis that have their names in a scatter plot."""
SHADES, HALF = 257, 0.5
"""Number of colours of a scale, odd so that there is one for its middle; half of all brightness."""
MISSING, INK, SOFT = "#e3e6ec", "#1f2430", "#5b6372"
MEASURED = "DejaVu Sans"
"""The font with which texts are measured; it comes with matplotlib."""
SHAPES = {"diamond": "D", "circle": "o", "square": "s"}
"""Marks of matplotlib for those on bars."""
CENTRED: dict[str, Any] = {"ha": "center", "va": "center"}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "interp",
    "path.simplify_threshold": 1.0,
    "text.parse_math": False,
    "font.family": MEASURED,
    "font.size": 9,
    "text.color": INK,
    **dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color"), SOFT),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "axes.spines.left"), False),
    "axes.edgecolor": FAINT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
}


class Parts(NamedTuple):
    """Traces and layout of a figure of Plotly, which has no types of them."""

    data: Sequence[Any]
    layout: Any


def figure_svg(figure: go.Figure) -> str:
    """The figure as an SVG document.

    Raises:
        TypeError: there is no drawing for the kind of its first trace.
    """
    drawings: dict[str, Callable[[Parts], Figure]] = {
        "heatmap": _heatmap,
        "bar": _bars,
        "scatter": _curves,
        "network": _network,
        "markers": _scatter,
    }
    parts = Parts(cast("Sequence[Any]", figure.data), figure.layout)
    kind = parts.data[0].type
    if any("text" in (trace.mode or "") for trace in parts.data if trace.type == "scatter"):
        kind = "network"
    elif kind == "scatter" and parts.data[0].mode == "markers":
        kind = "markers"
    if kind not in drawings:
        raise TypeError(f"No drawing of a {kind}; there are {', '.join(drawings)}.")
    with mpl.rc_context(STYLE):
        drawn = drawings[kind](parts)
        title = wrap(_as_read(parts.layout.title.text), MAX_TITLE)[:2]
        drawn.suptitle("\n".join(title), x=0.01, ha="left", size=10.5)
        file = StringIO()
        drawn.savefig(file, format="svg", metadata={"Creator": None, "Date": None})
    svg = file.getvalue()
    return svg[svg.index("<svg") :].replace(f"'{MEASURED}'", FONT)


def _as_read(text: str | None) -> str:
    """The text of a label of Plotly, which is escaped for HTML."""
    return unescape(text or "")


def _labels(axis: Any) -> list[str]:  # noqa: ANN401 - plotly has no types
    return [_as_read(label)[:MAX_LABEL] for label in axis.ticktext]


def _colours(scale: Any) -> ListedColormap:  # noqa: ANN401 - plotly has no types
    """The colours of a scale of Plotly."""
    colours = sample_colorscale([list(stop) for stop in scale], SHADES)
    return ListedColormap([np.divide(unlabel_rgb(colour), 255) for colour in colours])


def _panels(height: float, n: int = 1) -> tuple[Figure, Sequence[Axes]]:
    """A drawing of a height in pixels, with panels one above the other."""
    drawn = Figure((WIDTH / INCH, height / INCH), layout="constrained")
    return drawn, [*drawn.subplots(n, 1, sharex=True, squeeze=False)[:, 0]]


def _heatmap(figure: Parts) -> Figure:
    trace, layout = figure.data[0], figure.layout
    values = np.ma.masked_invalid(np.array(trace.z, dtype=float))
    down, across = _labels(layout.yaxis), _labels(layout.xaxis)
    below = CHARACTER * max(map(len, across))
    width = (WIDTH - 180) / len(across)
    height = max(8.0, min(26.0, 420 / len(down)))
    turned = below > width
    drawn, (axes,) = _panels(max(len(down) * height, 80) + 90 + (below if turned else LINE))
    colours = _colours(trace.colorscale)
    cells = axes.imshow(
        values,
        cmap=colours.with_extremes(bad=MISSING),
        vmin=trace.zmin,
        vmax=trace.zmax,
        aspect="auto",
        interpolation="none",
    )
    axes.spines[:].set_visible(False)
    for axis, labels, size in ((axes.xaxis, across, width), (axes.yaxis, down, height)):
        step = max(1, round(LINE / size)) if turned or axis is axes.yaxis else 1
        axis.set_ticks(range(0, len(labels), step), labels[::step])
    axes.tick_params("x", rotation=90 if turned else 0)
    axes.set(xlabel=_as_read(layout.xaxis.title.text), ylabel=_as_read(layout.yaxis.title.text))
    bar = drawn.colorbar(
        cells, aspect=12, shrink=min(1.0, BAR / (len(down) * height)), anchor=(0, 1)
    )
    ends = (trace.zmin, trace.zmax)
    bar.set_ticks(ends, labels=[number(end, 3) for end in ends])
    bar.outline.set_visible(False)
    bar.set_label(_as_read(trace.colorbar.title.text))
    if trace.text:
        brightness = cells.to_rgba(values)[..., :3] @ (0.3, 0.6, 0.1)
        for (row, column), is_bright in np.ndenumerate(brightness > HALF):
            text = _as_read(trace.text[row][column])[: int(width / CHARACTER)]
            axes.text(column, row, text, size=7.5, color=INK if is_bright else "white", **CENTRED)
    return drawn


def _bars(figure: Parts) -> Figure:
    trace, labels = figure.data[0], _labels(figure.layout.yaxis)
    drawn, (axes,) = _panels(100 + 20 * len(labels))
    error = trace.error_x
    ends = [np.array(e, dtype=float) for e in (error.arrayminus, error.array) if e is not None]
    rows = range(len(labels))
    axes.barh(
        rows,
        trace.x,
        color=trace.marker.color,
        xerr=np.nan_to_num(ends) if ends else None,
        ecolor=INK,
        label=_as_read(trace.name),
    )
    axes.axvline(0, color=SOFT, lw=1)
    axes.set_yticks(rows, labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel(_as_read(figure.layout.xaxis.title.text))
    for marks in figure.data[1:]:
        axes.plot(
            marks.x,
            rows,
            SHAPES[marks.marker.symbol],
            color=marks.marker.color,
            mec="white",
            ms=0.75 * marks.marker.size,
            label=_as_read(marks.name),
        )
    if figure.data[1:]:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4)
    return drawn


def _curves(figure: Parts) -> Figure:
    """Each panel with its lines; a legend below."""
    names = sorted({trace.yaxis or "y" for trace in figure.data}, key=lambda name: name[1:])
    drawn, panels = _panels(80 + 320 * len(names) + 18 * len(figure.data), len(names))
    for axes, name in zip(panels, names, strict=True):
        for trace in figure.data:
            if (trace.yaxis or "y") == name:
                label = _as_read(trace.name)
                axes.plot(trace.x, trace.y, color=trace.line.color, lw=1.2, label=label)
        for x in (figure.layout.meta or {}).get("marked", ()):
            axes.axvline(x, color=FAINT, lw=1, ls=":")
        axes.set_title(_as_read(figure.layout[f"yaxis{name[1:]}"].title.text), loc="left", size=9)
    last = panels[-1]
    if figure.layout.xaxis.type == "log":
        last.set_xscale("log")
        last.xaxis.set_major_formatter("{x:g}")
        last.xaxis.set_minor_formatter("")
    elif all(isinstance(x, int) for trace in figure.data for x in trace.x):
        last.locator_params("x", integer=True)
    last.set_xlabel(_as_read(figure.layout[f"xaxis{names[-1][1:]}"].title.text))
    drawn.legend(loc="outside lower left")
    return drawn


def _scatter(figure: Parts) -> Figure:
    """A point for each value, in the colour of its group; those furthest out have their names."""
    drawn, (axes,) = _panels(400)
    (points,) = figure.data
    names = [_as_read(each[0]) for each in points.customdata]
    groups = points.meta["groups"] or [""] * len(names)
    distinct = [*dict.fromkeys(groups)]
    colours = [points.marker.color]
    if len(distinct) > 1:
        colours = _colours(points.marker.colorscale)(np.linspace(0, 1, len(distinct)))
    for group, colour in zip(distinct, colours, strict=True):
        members = [n for n, each in enumerate(groups) if each == group]
        x, y = ([values[n] for n in members] for values in (points.x, points.y))
        axes.scatter(x, y, s=42, color=colour, edgecolors="white", label=group or None)
    orders = [sorted(range(len(names)), key=x.__getitem__) for x in (points.x, points.y)]
    for n in sorted({n for order in orders for n in order[-NAMED:]}):
        at = points.x[n], points.y[n]
        axes.annotate(names[n], at, xytext=(5, 3), textcoords="offset points", size=7.5)
    axes.set_xlabel(_as_read(figure.layout.xaxis.title.text))
    axes.set_ylabel(_as_read(figure.layout.yaxis.title.text))
    if len(distinct) > 1:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=8)
    return drawn


def _network(figure: Parts) -> Figure:
    """Nodes with their names, and lines between them with the widths of the figure."""
    *edges, labels, nodes = figure.data
    drawn, (axes,) = _panels(110 + 90 * len(set(nodes.y)))
    for edge in edges:
        line = {"color": edge.line.color, "lw": 0.75 * edge.line.width, "alpha": 0.75}
        axes.plot(edge.x, edge.y, ls="--" if edge.line.dash == "dash" else "-", **line)
    colour = nodes.marker.line.color
    axes.plot(nodes.x, nodes.y, "o", ms=28, mfc="white", mec=colour, mew=1.2)
    for places, size in ((nodes, 7.5), (labels, 6.75)):
        for x, y, text in zip(places.x, places.y, places.text, strict=True):
            axes.text(x, y, _as_read(text), size=size, **CENTRED)
    tokens = figure.layout.xaxis.ticktext
    if tokens is not None:
        lowest = min(nodes.y) - 0.45
        for x, token in zip(figure.layout.xaxis.tickvals, tokens, strict=True):
            axes.text(x, lowest, _as_read(token), size=7.5, **CENTRED)
    axes.axis("off")
    axes.margins(0.08, 0.1)
    notes = [_as_read(note.text) for note in figure.layout.annotations]
    drawn.supxlabel("\n".join(notes), x=0.01, ha="left", size=9, color=SOFT)
    return drawn
