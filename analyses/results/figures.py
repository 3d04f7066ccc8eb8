"""Plotly figures for results: the only module with colours, fonts and templates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from math import isfinite, nan
from typing import Any

import plotly.graph_objects as go
import plotly.io
import torch
from jaxtyping import Float
from plotly.subplots import make_subplots
from torch import Tensor

from analyses.results.number_text import fixed, number, places_of, signed

_WHITE = plotly.io.templates["plotly_white"].to_plotly_json()
TEMPLATE = go.layout.Template(
    layout=_WHITE["layout"],
    data={kind: _WHITE["data"][kind] for kind in ("bar", "heatmap", "scatter")},
)
"""``plotly_white``, reduced to the kinds of plot used here, since each figure copies it."""
SEQUENTIAL = "Cividis"
"""For values of zero and above; readable without colour vision."""
DIVERGING = "PuOr_r"
"""For values around zero; purple and orange differ without colour vision."""
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours of curves, distinguishable without colour vision (Okabe and Ito 2008)."""
ABOVE, BELOW = "#b35806", "#542788"
"""The ends of the diverging scale, for lines."""
FAINT = "#b8bfca"
FONT = "system-ui, sans-serif"
BELOW_NODE = 0.27
"""Where the label of a node stands, in rows."""
MOST_WRITTEN = 2**16
"""The most cells of a heatmap whose numbers are written by us; the browser formats more."""
ROWS_OF_NODES, ROW_OF_NODES = 8, 44
"""Rows of nodes that fit the default height of a graph; height of each of more rows, in pixels."""


def heatmap(  # noqa: PLR0913 - labels and units that make a figure readable alone
    values: Float[Tensor, "row column"],
    *,
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    axes: tuple[str, str],
    unit: str,
    diverging: bool = False,
    top: float | None = None,
    places: int | None = None,
    hover: Sequence[Sequence[str]] | None = None,
    text: Sequence[Sequence[str]] | None = None,
) -> go.Figure:
    """Heatmap of a table of numbers.

    Args:
        values: the numbers; the first row is at the top; cells that are not finite stay empty.
        title: title of the figure.
        rows: label of each row.
        columns: label of each column.
        axes: titles of the row axis and the column axis.
        unit: unit of the values, shown at the colour bar.
        diverging: centre the colour scale on zero instead of starting it there.
        top: end of the colour scale, to share it between figures; ``None`` takes the largest value.
        places: decimals of the values in hover texts, to share them with a table or a text;
            ``None`` shows three digits of the largest value.
        hover: hover text of each cell; ``None`` shows row, column and value.
        text: text shown in each cell, such as tokens.
    """
    table = values.detach().cpu().double()
    numbers = table[table.isfinite()].abs().tolist()
    largest = top if top is not None else max(numbers, default=0.0) or 1.0
    written, write = None, signed if diverging else fixed
    if hover is None:
        places = places_of(numbers) if places is None else places
        shown = f"z:.{places}f"
        if table.numel() <= MOST_WRITTEN:
            shown = "customdata"
            written = [[write(x, places) for x in row] for row in table.tolist()]
        template = f"{axes[0]} %{{y}}, {axes[1]} %{{x}}: %{{{shown}}} {unit}<extra></extra>"
    else:
        template = "%{hovertext}<extra></extra>"
    drawn = go.Heatmap(
        z=[[value if isfinite(value) else None for value in row] for row in table.tolist()],
        zmin=-largest if diverging else 0.0,
        zmax=largest,
        colorscale=DIVERGING if diverging else SEQUENTIAL,
        colorbar={"title": {"text": unit, "side": "right"}},
        customdata=written,
        hovertext=hover,
        hovertemplate=template,
        text=None if text is None else [[escaped(own) for own in row] for row in text],
        texttemplate=None if text is None else "%{text}",
    )
    across = {"title": axes[1], **_ticks(columns), "side": "bottom", "constrain": "domain"}
    down = {"title": axes[0], **_ticks(rows), "autorange": "reversed"}
    return go.Figure(drawn, _layout(title, xaxis=across, yaxis=down))


def cell_heatmap(  # noqa: PLR0913 - as for a heatmap
    values: Float[Tensor, " cell"],
    rows: Sequence[object],
    columns: Sequence[object],
    *,
    title: str,
    axes: tuple[str, str],
    unit: str,
    places: int | None = None,
) -> go.Figure:
    """Heatmap of cells that are given by the labels of their row and column; others stay empty.

    Args:
        values: value of each cell; the scale is centred on zero.
        rows: the row of each cell; rows appear in the order in which they occur first.
        columns: the column of each cell, likewise.
        title: title of the figure.
        axes: titles of the row axis and the column axis.
        unit: unit of the values.
        places: as in :func:`heatmap`.
    """
    down, across = (
        {label: n for n, label in enumerate(dict.fromkeys(own))} for own in (rows, columns)
    )
    table = values.new_full((len(down), len(across)), nan)
    for row, column, value in zip(rows, columns, values, strict=True):
        table[down[row], across[column]] = value
    return heatmap(
        table,
        title=title,
        rows=[str(row).strip() for row in down],
        columns=[str(column) for column in across],
        axes=axes,
        unit=unit,
        diverging=True,
        places=places,
    )


def token_strips(  # noqa: PLR0913 - as for a heatmap
    values: Sequence[Sequence[float]],
    tokens: Sequence[Sequence[str]],
    *,
    title: str,
    rows: Sequence[str],
    unit: str,
    diverging: bool = False,
    top: float | None = None,
) -> go.Figure:
    """Texts as rows of tokens, each coloured by its value.

    Args:
        values: value of each token; NaN for none.
        tokens: label of each token.
        title: title of the figure.
        rows: label of each text.
        unit: unit of the values.
        diverging: as in :func:`heatmap`.
        top: likewise.
    """
    width = max(map(len, tokens))
    table = [[*own, *[nan] * (width - len(own))] for own in values]
    return heatmap(
        torch.tensor(table, dtype=torch.float64),
        title=title,
        rows=rows,
        columns=[""] * width,
        axes=("text", "tokens around the cell"),
        unit=unit,
        diverging=diverging,
        top=top,
        text=[[*own, *[""] * (width - len(own))] for own in tokens],
    )


def bars(  # noqa: PLR0913 - as for a heatmap
    values: Float[Tensor, " cell"],
    low: Float[Tensor, " cell"],
    high: Float[Tensor, " cell"],
    *,
    title: str,
    labels: Sequence[str],
    unit: str,
    places: int | None = None,
) -> go.Figure:
    """Horizontal bars, the first at the top, with their intervals.

    Args:
        values: length of each bar.
        low: lower end of its interval; NaN for none.
        high: upper end of its interval.
        title: title of the figure.
        labels: label of each bar.
        unit: unit of the values.
        places: as in :func:`heatmap`.
    """
    places = places_of(values.tolist()) if places is None else places
    ends = {"array": (high - values).tolist(), "arrayminus": (values - low).tolist()}
    drawn = go.Bar(
        x=values.tolist(),
        y=list(range(len(labels))),
        orientation="h",
        marker={"color": LINES[0]},
        error_x={"type": "data", "symmetric": False, **ends, "color": FAINT},
        customdata=[
            [escaped(label), signed(value, places)]
            for label, value in zip(labels, values.tolist(), strict=True)
        ],
        hovertemplate=f"%{{customdata[0]}}: %{{customdata[1]}} {unit}<extra></extra>",
    )
    across = {"title": unit}
    down = {**_ticks(labels), "autorange": "reversed", "automargin": True}
    height = max(450, 130 + 20 * len(labels))
    return go.Figure(drawn, _layout(title, xaxis=across, yaxis=down, height=height))


@dataclass(frozen=True)
class Curve:
    """One line of a figure.

    Attributes:
        name: name in the legend.
        x: coordinates along the shared axis.
        y: values.
        faint: whether it is drawn in grey.
    """

    name: str
    x: Sequence[int] | Sequence[float]
    y: Sequence[float]
    faint: bool = False


def curves(
    panels: Mapping[str, Sequence[Curve]],
    *,
    title: str,
    axis: str,
    units: Sequence[str],
    marked: Sequence[int] | Sequence[float] = (),
) -> go.Figure:
    """Line plots in panels, one above the other, over a shared x axis.

    Args:
        panels: the lines of each panel, by the title of its y axis; empty panels are left out.
        title: title of the figure.
        axis: title of the shared x axis.
        units: unit of each panel.
        marked: x coordinates of vertical dotted lines.
    """
    filled = [(name, unit) for name, unit in zip(panels, units, strict=True) if panels[name]]
    meta = {"panels": filled, "axis": axis, "marked": list(marked)}
    figure = make_subplots(
        len(filled),
        1,
        shared_xaxes=True,
        vertical_spacing=0.08,
        figure=go.Figure(layout=_layout(title, legend={"orientation": "h", "y": -0.2}, meta=meta)),
    )
    colours = cycle(LINES)
    for row, (name, unit) in enumerate(filled, 1):
        places = places_of(y for curve in panels[name] for y in curve.y)
        for curve in panels[name]:
            colour = FAINT if curve.faint else next(colours)
            line = go.Scatter(
                x=list(curve.x),
                y=list(curve.y),
                name=escaped(curve.name),
                line={"color": colour},
                customdata=[fixed(y, places) for y in curve.y],
                hovertemplate=f"%{{x}}: %{{customdata}} {unit}",
            )
            figure.add_trace(line, row=row, col=1)
        figure.update_yaxes(title=f"{name} ({unit})", row=row, col=1)
    figure.update_xaxes(title=axis, row=len(filled), col=1)
    for x in marked:
        figure.add_vline(x, line={"dash": "dot", "width": 1, "color": FAINT})
    return figure


@dataclass(frozen=True)
class Node:
    """A node of a drawn graph.

    Attributes:
        name: its name, drawn inside it.
        x: its column.
        y: its row; rows are counted from below.
        label: text below its name.
    """

    name: str
    x: float
    y: float
    label: str = ""


def network(
    nodes: Sequence[Node],
    edges: Mapping[tuple[int, int], float],
    *,
    title: str,
    unit: str,
) -> go.Figure:
    """A graph whose lines are as wide as their weights: orange above zero, purple below.

    Args:
        nodes: the nodes with their places.
        edges: weight of the line between two nodes, by their indices.
        title: title of the figure.
        unit: unit of the weights.
    """
    places = [[node.name, node.x, node.y, node.label] for node in nodes]
    hidden = {"visible": False}
    figure = go.Figure(
        layout=_layout(
            title,
            showlegend=False,
            meta={"nodes": places, "unit": unit},
            xaxis=hidden,
            yaxis=hidden,
        )
    )
    rows = len({node.y for node in nodes})
    if rows > ROWS_OF_NODES:  # which would overlap in the default height
        figure.update_layout(height=ROW_OF_NODES * rows + 150)
    largest = max((abs(weight) for weight in edges.values()), default=0.0) or 1.0
    places = places_of(edges.values())
    for ends, weight in edges.items():
        text = f"{signed(weight, places)} {unit}"
        figure.add_trace(_edge_line(nodes, ends, weight, largest, text))
    figure.add_trace(_labels_below([node for node in nodes if node.label]))
    figure.add_trace(_circles(nodes))
    figure.add_annotation(
        text=f"width: size of the weight ({escaped(unit)}, up to {number(largest, 3)}); "
        "orange: above 0, purple: below",
        showarrow=False,
        xref="paper",
        yref="paper",
        x=0,
        y=-0.05,
        xanchor="left",
    )
    return figure


def _edge_line(
    nodes: Sequence[Node], ends: tuple[int, int], weight: float, largest: float, text: str
) -> go.Scatter:
    """The line of an edge, with a point in its middle to hover over."""
    one, other = (nodes[end] for end in ends)
    return go.Scatter(
        x=[one.x, (one.x + other.x) / 2, other.x],
        y=[one.y, (one.y + other.y) / 2, other.y],
        mode="lines",
        line={"color": BELOW if weight < 0 else ABOVE, "width": 0.5 + 5.5 * abs(weight) / largest},
        opacity=0.75,
        hovertemplate=f"{escaped(one.name)} → {escaped(other.name)}: {text}<extra></extra>",
        meta={"edge": [*ends, weight]},
    )


def _labels_below(nodes: Sequence[Node]) -> go.Scatter:
    """The labels below the nodes that have one."""
    return go.Scatter(
        x=[node.x for node in nodes],
        y=[node.y - BELOW_NODE for node in nodes],
        mode="text",
        text=[escaped(node.label) for node in nodes],
        textfont={"size": 9},
        hoverinfo="skip",
    )


def _circles(nodes: Sequence[Node]) -> go.Scatter:
    """The nodes as circles with their names."""
    return go.Scatter(
        x=[node.x for node in nodes],
        y=[node.y for node in nodes],
        mode="markers+text",
        text=[escaped(node.name) for node in nodes],
        textposition="middle center",
        marker={"size": 34, "color": "white", "line": {"color": LINES[0], "width": 1.5}},
        textfont={"size": 10},
        hoverinfo="skip",
    )


def escaped(label: str) -> str:
    """A label with HTML escaped: Plotly renders some tags, and tokens may contain them."""
    return label.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _ticks(labels: Sequence[str]) -> dict[str, Any]:
    """Tick labels at their indices, so that equal labels stay separate ticks."""
    texts = [escaped(label) for label in labels]
    return {"tickmode": "array", "tickvals": list(range(len(texts))), "ticktext": texts}


def _layout(title: str, **more: object) -> dict[str, Any]:
    """A layout for the constructor of a figure: an update would copy the template several times."""
    return {
        "template": TEMPLATE,
        "title": {"text": escaped(title), "x": 0.0, "xanchor": "left"},
        "font": {"family": FONT, "size": 13, "color": "#1f2430"},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "margin": {"l": 80, "r": 20, "t": 60, "b": 70},
        **more,
    }
