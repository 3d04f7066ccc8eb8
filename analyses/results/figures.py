"""Draws figures of results with Plotly: the only module with colours, fonts and templates."""

from collections.abc import Callable, Mapping, Sequence
from functools import singledispatch, wraps
from inspect import signature
from itertools import cycle
from math import isfinite
from typing import Any, ParamSpec

import plotly.graph_objects as go
import plotly.io
from plotly.subplots import make_subplots
from torch import Tensor

from analyses.results.drawing import Bars, Curves, Drawing, Heatmap, Network, Node, Scatter
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
INK = "#1f2430"
MARKS = (("diamond", LINES[2], 11), ("circle", INK, 7), ("square", LINES[5], 8))
"""Shapes, colours and sizes of marks on bars, in the order of their names."""
ABOVE, BELOW = "#b35806", "#542788"
"""The ends of the diverging scale, for lines."""
FAINT = "#b8bfca"
MARK_EDGE = {"color": "white", "width": 1.5}
"""Sets a mark off from its bar."""
FONT = "system-ui, sans-serif"
BELOW_NODE = 0.27
"""Where the label of a node stands, in rows."""
MOST_WRITTEN = 2**16
"""The most cells of a heatmap whose numbers are written by us; the browser formats more."""
SCORES = ("q", "k")
"""Lines of these letters are dashed."""
GAP = 0.4
"""The gap between columns of nodes, in nodes."""
ROWS_OF_NODES, ROW_OF_NODES = 8, 44
"""Rows of nodes that fit the default height of a graph; height of each of more rows, in pixels."""


P = ParamSpec("P")


def plotted(describe: Callable[P, Drawing]) -> Callable[P, go.Figure]:
    """The function that draws with Plotly what another function describes."""

    @wraps(describe)
    def plot(*args: P.args, **kwargs: P.kwargs) -> go.Figure:
        return plotly_figure(describe(*args, **kwargs))

    vars(plot)["__signature__"] = signature(describe).replace(return_annotation=go.Figure)
    return plot


@singledispatch
def plotly_figure(drawing: Drawing) -> go.Figure:
    """What is described, as a Plotly figure."""
    raise TypeError(f"A {type(drawing).__name__} is no drawing.")


@plotly_figure.register
def _(drawing: Heatmap) -> go.Figure:
    table, axes = drawing.table, drawing.axes
    write = signed if drawing.diverging else fixed
    written: list[list[Any]] | None = None
    hover, template = None, "%{hovertext}<extra></extra>"
    if drawing.hover is not None:
        hover = [[escaped(text).replace("\n", "<br>") for text in row] for row in drawing.hover]
    else:
        numbers = table[table.isfinite()].abs().tolist()
        places = places_of(numbers) if drawing.places is None else drawing.places
        variable, lines = f"z:.{places}f", ""
        if table.numel() <= MOST_WRITTEN:
            variable = "customdata"
            written = [[write(x, places) for x in row] for row in drawing.values.tolist()]
        if drawing.beside and written is not None:
            variable = "customdata[0]"
            tables = [written, *(_signed(values, places) for values in drawing.beside.values())]
            written = [
                [[*cell] for cell in zip(*rows, strict=True)] for rows in zip(*tables, strict=True)
            ]
            lines = "".join(
                f"<br>{escaped(name)} %{{customdata[{n}]}} {drawing.unit}"
                for n, name in enumerate(drawing.beside, 1)
            )
        cell = f"{axes[0]} %{{y}}, {axes[1]} %{{x}}"
        template = f"{cell}: %{{{variable}}} {drawing.unit}{lines}<extra></extra>"
    text = drawing.text
    trace = go.Heatmap(
        z=[[value if isfinite(value) else None for value in row] for row in table.tolist()],
        zmin=drawing.scale.low,
        zmax=drawing.scale.high,
        colorscale=DIVERGING if drawing.diverging else SEQUENTIAL,
        reversescale=drawing.scale.helps == "below",
        colorbar={"title": {"text": drawing.unit, "side": "right"}},
        customdata=written,
        hovertext=hover,
        hovertemplate=template,
        text=None if text is None else [[escaped(cell) for cell in row] for row in text],
        texttemplate=None if text is None else "%{text}",
    )
    columns, rows = _ticks(drawing.columns), _ticks(drawing.rows)
    across = {"title": axes[1], **columns, "side": "bottom", "constrain": "domain"}
    down = {"title": axes[0], **rows, "autorange": "reversed"}
    return go.Figure(trace, _layout(drawing.title, xaxis=across, yaxis=down))


@plotly_figure.register
def _(drawing: Bars) -> go.Figure:
    values, labels = drawing.values, drawing.labels
    places = places_of(values.tolist()) if drawing.places is None else drawing.places
    above, below = drawing.high - values, values - drawing.low
    ends = {"array": above.tolist(), "arrayminus": below.tolist()}
    hover = _bar_hover(drawing, places)
    trace = go.Bar(
        x=values.tolist(),
        y=list(range(len(labels))),
        orientation="h",
        marker={"color": LINES[0]},
        error_x={"type": "data", "symmetric": False, **ends, "color": FAINT},
        name=escaped(drawing.name),
        **hover,
    )
    marks = [
        go.Scatter(
            x=x.tolist(),
            y=list(range(len(labels))),
            name=escaped(name),
            mode="markers",
            marker={"symbol": symbol, "color": colour, "size": size, "line": MARK_EDGE},
            **hover,
        )
        for (name, x), (symbol, colour, size) in zip(drawing.marks.items(), MARKS, strict=False)
    ]
    across = {"title": drawing.unit}
    down = {**_ticks(labels), "autorange": "reversed", "automargin": True}
    height = max(450, 130 + 20 * len(labels))
    legend = {"legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom"}} if marks else {}
    layout = _layout(drawing.title, xaxis=across, yaxis=down, height=height, **legend)
    return go.Figure([trace, *marks], layout)


def _signed(values: Tensor, places: int) -> list[list[str]]:
    """The numbers of a table as texts."""
    return [[signed(x, places) for x in row] for row in values.tolist()]


def _bar_hover(drawing: Bars, places: int) -> dict[str, Any]:
    """The hover text of each row: its value, then its marks by name."""
    names = ["", *(f"{escaped(name)} " for name in drawing.marks)]
    columns = [[signed(x, places) for x in drawing.values.tolist()]]
    columns += [[signed(x, places) for x in values.tolist()] for values in drawing.marks.values()]
    numbers = (
        f"{name}%{{customdata[{n}]}} {drawing.unit}".rstrip() for n, name in enumerate(names, 1)
    )
    labels = [escaped(label) for label in drawing.labels]
    return {
        "customdata": [[*row] for row in zip(labels, *columns, strict=True)],
        "hovertemplate": f"%{{customdata[0]}}: {'<br>'.join(numbers)}<extra></extra>",
    }


@plotly_figure.register
def _(drawing: Curves) -> go.Figure:
    panels = [(name, unit) for name, unit, _ in drawing.filled]
    meta = {"panels": panels, "axis": drawing.axis, "marked": list(drawing.marked)}
    layout = _layout(drawing.title, legend={"orientation": "h", "y": -0.2}, meta=meta)
    figure = make_subplots(
        len(panels), 1, shared_xaxes=True, vertical_spacing=0.08, figure=go.Figure(layout=layout)
    )
    colours = cycle(LINES)
    for row, (name, unit, lines) in enumerate(drawing.filled, 1):
        places = places_of(y for curve in lines for y in curve.y)
        for curve in lines:
            colour = FAINT if curve.faint else next(colours)
            trace = go.Scatter(
                x=list(curve.x),
                y=list(curve.y),
                name=escaped(curve.name),
                line={"color": colour},
                customdata=[fixed(y, places) for y in curve.y],
                hovertemplate=f"%{{x}}: %{{customdata}} {unit}",
            )
            figure.add_trace(trace, row=row, col=1)
        figure.update_yaxes(title=f"{name} ({unit})", row=row, col=1)
    figure.update_xaxes(title=drawing.axis, row=len(panels), col=1)
    for x in drawing.marked:
        figure.add_vline(x, line={"dash": "dot", "width": 1, "color": FAINT})
    if drawing.log:
        figure.update_xaxes(type="log")
    return figure


@plotly_figure.register
def _(drawing: Network) -> go.Figure:
    """Orange above zero, purple below; scores dashed."""
    lines, unit = drawing.drawn_lines, drawing.unit
    ends = {end for line in lines for end in line[:2]} | {drawing.root}
    nodes = {n: node for n, node in enumerate(drawing.nodes) if drawing.root is None or n in ends}
    places, axes = _places(drawing, nodes)
    meta = {"nodes": [[node.name, node.x, node.y, node.label] for node in nodes.values()]}
    layout = _layout(drawing.title, showlegend=False, meta={**meta, "unit": unit}, **axes)
    figure = go.Figure(layout=layout)
    rows = len({y for _, y in places.values()})
    if rows > ROWS_OF_NODES:  # which would overlap in the default height
        figure.update_layout(height=ROW_OF_NODES * rows + 150)
    largest = max((abs(weight) for *_, weight, _ in lines), default=0.0) or 1.0
    decimals = places_of(weight for *_, weight, _ in lines)
    for writer, reader, weight, letter in lines:
        name = f"{drawing.nodes[writer].name} → {drawing.nodes[reader].read_as(letter)}"
        text = f"{escaped(name)}: {signed(weight, decimals)} {unit}"
        style = _line_style(weight / largest, is_dashed=letter in SCORES)
        line = _edge_line(places[writer], places[reader], style, text)
        line.meta = {"edge": [writer, reader, weight, *letter]}
        figure.add_trace(line)
    figure.add_trace(_labels_below([(places[n], node) for n, node in nodes.items() if node.label]))
    figure.add_trace(_circles([(places[n], node) for n, node in nodes.items()]))
    dashed = "; dashed: queries and keys" if any(letter in SCORES for *_, letter in lines) else ""
    figure.add_annotation(
        text=f"width: size of the weight ({escaped(unit)}, up to {number(largest, 3)}); "
        f"orange: above 0, purple: below{dashed}",
        showarrow=False,
        xref="paper",
        yref="paper",
        x=0,
        y=-0.05 if not drawing.columns else -0.1,
        xanchor="left",
    )
    return figure


def _places(
    drawing: Network, nodes: Mapping[int, Node]
) -> tuple[dict[int, tuple[float, float]], dict[str, Any]]:
    """Where nodes are drawn, and the axes.

    If columns and rows have labels, those without a node are left out, and nodes of the same row
    and column are beside one another.
    """
    if not drawing.columns:
        axis = {"visible": False}
        return {n: (node.x, node.y) for n, node in nodes.items()}, {"xaxis": axis, "yaxis": axis}
    cells: dict[tuple[float, float], list[int]] = {}
    for n, node in nodes.items():
        cells.setdefault((node.x, node.y), []).append(n)
    rows = sorted({y for _, y in cells})
    middles, left = dict[float, float](), 0.0
    for column in sorted({x for x, _ in cells}):
        width = max(len(each) for (x, _), each in cells.items() if x == column)
        middles[column] = left + width / 2
        left += width + GAP
    places = {
        n: (middles[x] + place - (len(each) - 1) / 2, float(rows.index(y)))
        for (x, y), each in cells.items()
        for place, n in enumerate(each)
    }
    plain = {"showgrid": False, "zeroline": False, "tickmode": "array"}
    across = {
        **plain,
        "tickvals": [*middles.values()],
        "ticktext": [escaped(drawing.columns[int(x)]) for x in middles],
        "range": [-GAP, left],
    }
    down = {
        **plain,
        "showgrid": True,
        "tickvals": [*range(len(rows))],
        "ticktext": [escaped(drawing.rows[int(y)]) for y in rows],
    }
    return places, {"xaxis": across, "yaxis": down}


@plotly_figure.register
def _(drawing: Scatter) -> go.Figure:
    """Colours go from the first group to the last."""
    points = drawing.points
    names = list(dict.fromkeys(drawing.groups))
    places = [places_of(values) for values in zip(*((x, y) for x, y, *_ in points), strict=True)]
    hover = [
        [escaped(label), *(fixed(x, n) for x, n in zip((x, y), places, strict=True))]
        for x, y, label, _ in points
    ]
    marker: dict[str, Any] = {"size": 9, "color": LINES[0], "line": {"color": "white", "width": 1}}
    if names:
        marker |= {
            "color": [names.index(group) for *_, group in points],
            "colorscale": SEQUENTIAL,
            "colorbar": {
                "tickvals": [0, len(names) - 1],
                "ticktext": [escaped(names[0]), escaped(names[-1])],
            },
        }
    lines = (
        f"{escaped(axis)} %{{customdata[{n}]}} {escaped(unit)}"
        for n, (axis, unit) in enumerate(zip(drawing.axes, drawing.units, strict=True), 1)
    )
    trace = go.Scatter(
        x=[x for x, *_ in points],
        y=[y for _, y, *_ in points],
        mode="markers",
        marker=marker,
        customdata=hover,
        hovertemplate=f"%{{customdata[0]}}<br>{'<br>'.join(lines)}<extra></extra>",
        meta={"units": list(drawing.units), "groups": [group for *_, group in points]},
    )
    titles = [f"{axis} ({unit})" for axis, unit in zip(drawing.axes, drawing.units, strict=True)]
    across, down = ({"title": escaped(title)} for title in titles)
    return go.Figure(trace, _layout(drawing.title, xaxis=across, yaxis=down))


heatmap, bars = plotted(Heatmap), plotted(Bars)
curves, network = plotted(Curves), plotted(Network)


def _line_style(share: float, *, is_dashed: bool) -> dict[str, Any]:
    """The style of an edge, from its weight as a share of the largest one."""
    dash = {"dash": "dash"} if is_dashed else {}
    return {"color": BELOW if share < 0 else ABOVE, "width": 0.5 + 5.5 * abs(share), **dash}


def _edge_line(
    start: tuple[float, float], end: tuple[float, float], style: dict[str, Any], text: str
) -> go.Scatter:
    """The line of an edge, with a point in its middle to hover over."""
    return go.Scatter(
        x=[start[0], (start[0] + end[0]) / 2, end[0]],
        y=[start[1], (start[1] + end[1]) / 2, end[1]],
        mode="lines",
        line=style,
        opacity=0.75,
        hovertemplate=f"{text}<extra></extra>",
    )


def _labels_below(placed: Sequence[tuple[tuple[float, float], Node]]) -> go.Scatter:
    """The labels below the nodes that have one."""
    return go.Scatter(
        x=[x for (x, _), _ in placed],
        y=[y - BELOW_NODE for (_, y), _ in placed],
        mode="text",
        text=[escaped(node.label) for _, node in placed],
        textfont={"size": 9},
        hoverinfo="skip",
    )


def _circles(placed: Sequence[tuple[tuple[float, float], Node]]) -> go.Scatter:
    """The nodes as circles with their names."""
    notes = [f"{escaped(node.name)}: {escaped(node.note)}" for _, node in placed if node.note]
    return go.Scatter(
        x=[x for (x, _), _ in placed],
        y=[y for (_, y), _ in placed],
        mode="markers+text",
        text=[escaped(node.short_name) for _, node in placed],
        textposition="middle center",
        marker={"size": 34, "color": "white", "line": {"color": LINES[0], "width": 1.5}},
        textfont={"size": 10},
        **({"hovertext": notes, "hoverinfo": "text"} if notes else {"hoverinfo": "skip"}),
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
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "margin": {"l": 80, "r": 20, "t": 60, "b": 70},
        **more,
    }
