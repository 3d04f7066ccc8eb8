"""Converts figures and tables to views of the widget, with the same numbers, titles and units."""

from collections.abc import Callable, Mapping, Sequence
from html import unescape
from math import isfinite, nan
from typing import Any

import plotly.graph_objects as go

from analyses.results import FAINT, encoded
from apps.frame_table import Table
from interp.errors import InvalidInput

View = dict[str, Any]

PAIR_AXES = ("query", "key")
HEAD_AXES = ("layer", "head")


def views_of_figure(figure: go.Figure, id: str) -> list[View]:
    """The views that show a figure.

    Args:
        figure: a figure that :mod:`analyses.results.figures` made.
        id: the id of the view.

    Raises:
        InvalidInput: the figure is of another form.
    """
    for is_form, view in FORMS:
        if is_form(figure):
            layout: Any = figure.layout
            return [{"id": id, "title": unescape(layout.title.text or ""), **view(figure)}]
    traces: Any = figure.data
    kinds = ", ".join(dict.fromkeys(trace.type for trace in traces)) or "no traces"
    raise InvalidInput(
        f"A figure of {kinds} can't be shown; expected a figure made by analyses.results.figures."
    )


def table_view(identity: str, title: str, table: Table, note: str = "") -> View:
    """A table as a view of the widget."""
    columns, rows = table
    return {
        "kind": "table",
        "id": identity,
        "title": title,
        "note": note,
        "columns": [{"title": name, "align": side} for name, side in columns],
        "rows": [[*row] for row in rows],
    }


def share_scales(one: Sequence[View], other: Sequence[View]) -> tuple[list[View], list[View]]:
    """Give views with the same id and kind in two lists the same scales.

    The lists are shown side by side and compared by eye.
    """
    pairs = {view["id"]: view for view in one}, {view["id"]: view for view in other}
    return (
        [_shared(view, pairs[1].get(view["id"])) for view in one],
        [_shared(view, pairs[0].get(view["id"])) for view in other],
    )


def _shared(view: View, other: View | None) -> View:
    if other is None or other["kind"] != view["kind"]:
        return view
    if view["kind"] == "curves":
        return view | {"panels": _shared_panels(view["panels"], other["panels"])}
    if view["kind"] == "heads":
        theirs = {score["id"]: score for score in other.get("scores", ())}
        scores = view.get("scores", ())
        return view | {"scores": [_on_one_scale(own, theirs.get(own["id"])) for own in scores]}
    return _on_one_scale(view, other)


def _on_one_scale(view: View, other: View | None) -> View:
    """The view with a scale that covers both scales; diverging if either is."""
    own, theirs = view.get("scale"), (other or {}).get("scale")
    if not isinstance(own, Mapping) or not isinstance(theirs, Mapping):
        return view
    low, high = min(own["low"], theirs["low"]), max(own["high"], theirs["high"])
    kind = "diverging" if "diverging" in (own["kind"], theirs["kind"]) else own["kind"]
    if kind == "diverging" and view.get("kind") != "bars":
        high = max(high, -low)
        low = -high
    return view | {"scale": {"kind": kind, "low": low, "high": high}}


def _shared_panels(panels: Sequence[View], others: Sequence[View]) -> list[View]:
    """The panels with y axes that cover the ranges of both views."""
    theirs = {panel["title"]: panel for panel in others}
    found: list[View] = []
    for panel in panels:
        both = [panel, *([theirs[panel["title"]]] if panel["title"] in theirs else [])]
        ends = [end for own in both for end in own["ends"]]
        found.append(panel | {"ends": [min(ends), max(ends)]})
    return found


# ---- the forms -------------------------------------------------------------------------------


def _matrix(figure: go.Figure) -> View:
    """The view of a heat map."""
    drawn: Any = figure.data[0]
    axes: Any = figure.layout
    rows, columns = (_labels(axis) for axis in (axes.yaxis, axes.xaxis))
    titles = axes.yaxis.title.text or "", axes.xaxis.title.text or ""
    low, high = float(drawn.zmin), float(drawn.zmax)
    kind = "diverging" if low < 0 else "sequential"
    view: View = {
        "kind": "matrix",
        "rows": rows,
        "columns": columns,
        "row_axis": titles[0],
        "column_axis": titles[1],
        "unit": drawn.colorbar.title.text or "",
        "values": encoded([_numbers(row) for row in drawn.z]),
        "scale": {"kind": kind, "low": low, "high": high},
        "numbers": True,
        "pick": _pick(titles, rows, columns),
    }
    if drawn.texttemplate:
        view["texts"] = [[unescape(own) for own in row] for row in drawn.text]
    if drawn.hovertext is not None and titles != PAIR_AXES:
        view["hover"] = [[unescape(own).split("<br>") for own in row] for row in drawn.hovertext]
    return view


def _pick(titles: tuple[str, str], rows: Sequence[str], columns: Sequence[str]) -> str | None:
    if titles == PAIR_AXES:
        return "pair"
    numbered = all(list(own) == [str(n) for n in range(len(own))] for own in (rows, columns))
    return "head" if titles == HEAD_AXES and numbered else None


def _bars(figure: go.Figure) -> View:
    """The view of bars."""
    drawn: Any = figure.data[0]
    axes: Any = figure.layout
    values = _numbers(drawn.x)
    above, below = (_numbers(own) for own in (drawn.error_x.array, drawn.error_x.arrayminus))
    low = [value - less for value, less in zip(values, below, strict=True)]
    high = [value + more for value, more in zip(values, above, strict=True)]
    return {
        "kind": "bars",
        "labels": _labels(axes.yaxis),
        "values": _array(values),
        "low": _array(low),
        "high": _array(high),
        "unit": axes.xaxis.title.text or "",
        "scale": _bar_scale([*values, *low, *high]),
        "pick": "row",
    }


def _bar_scale(values: Sequence[float]) -> View:
    low, high = _ends([0.0, *values])
    return {"kind": "diverging" if low < 0 else "sequential", "low": low, "high": high}


def _ends(values: Sequence[float]) -> list[float]:
    """The smallest and the largest finite number; zeros if there is none."""
    finite = [value for value in values if isfinite(value)]
    return [min(finite, default=0.0), max(finite, default=0.0)]


def _curves(figure: go.Figure) -> View:
    """The view of line plots."""
    axes: Any = figure.layout
    meta = axes.meta
    panels: list[View] = [
        {"title": title, "unit": unit, "curves": []} for title, unit in meta["panels"]
    ]
    for trace in figure.data:
        own: Any = trace
        place = int((own.yaxis or "y").removeprefix("y") or 1) - 1
        curve = {
            "name": unescape(own.name or ""),
            "x": _array(own.x),
            "y": _array(own.y),
            "faint": own.line.color == FAINT,
        }
        panels[place]["curves"].append(curve)
        panels[place]["ends"] = _ends([*panels[place].get("ends", ()), *_numbers(own.y)])
    return {
        "kind": "curves",
        "axis": meta["axis"],
        "log": axes.xaxis.type == "log",
        "panels": panels,
        "marked": [float(x) for x in meta["marked"] if isfinite(x)],
        "pick": None,
    }


def _network(figure: go.Figure) -> View:
    """The view of a graph."""
    layout: Any = figure.layout
    meta = layout.meta
    traces: Any = figure.data
    nodes = [
        {"name": name, "x": float(x), "y": float(y), "label": label}
        for name, x, y, label in meta["nodes"]
    ]
    edges = [trace.meta["edge"] for trace in traces if trace.meta is not None]
    return {
        "kind": "network",
        "nodes": nodes,
        "edges": [[int(start), int(end), float(weight)] for start, end, weight in edges],
        "unit": meta["unit"],
        "pick": "edge",
    }


def _is_single(trace: type) -> Callable[[go.Figure], bool]:
    def is_form(figure: go.Figure) -> bool:
        traces: Any = figure.data
        return len(traces) == 1 and isinstance(traces[0], trace)

    return is_form


def _has_meta(name: str) -> Callable[[go.Figure], bool]:
    def is_form(figure: go.Figure) -> bool:
        layout: Any = figure.layout
        return isinstance(layout.meta, Mapping) and name in layout.meta

    return is_form


FORMS: tuple[tuple[Callable[[go.Figure], bool], Callable[[go.Figure], View]], ...] = (
    (_is_single(go.Heatmap), _matrix),
    (_is_single(go.Bar), _bars),
    (_has_meta("panels"), _curves),
    (_has_meta("nodes"), _network),
)
"""For each form of figures, the test that recognizes it and the function that converts it."""


def _labels(axis: Any) -> list[str]:  # noqa: ANN401 - plotly has no types
    return [unescape(text) for text in axis.ticktext]


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [nan if value is None else float(value) for value in values]


def _array(values: Sequence[float | None]) -> View:
    """Numbers in the encoding that the widget reads; ``None`` becomes NaN."""
    return encoded(_numbers(values))
