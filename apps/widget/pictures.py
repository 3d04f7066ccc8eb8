"""Converts drawings and tables to views of the widget, with the same numbers, titles and units."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import singledispatch
from math import isfinite
from typing import Any

from analyses.results import Bars, Curves, Drawing, Heatmap, Network, Scatter, encoded, ends
from apps.frame_table import Table

View = dict[str, Any]

PAIR_AXES = ("query", "key")
HEAD_AXES = ("layer", "head")


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


def share_scales(views: Sequence[View], others: Sequence[View]) -> tuple[list[View], list[View]]:
    """Give views with the same id and kind in two lists the same scales.

    The lists are shown side by side and compared by eye.
    """
    pairs = {view["id"]: view for view in views}, {view["id"]: view for view in others}
    return (
        [_shared(view, pairs[1].get(view["id"])) for view in views],
        [_shared(view, pairs[0].get(view["id"])) for view in others],
    )


def _shared(view: View, other: View | None) -> View:
    if other is None or other["kind"] != view["kind"]:
        return view
    if view["kind"] == "curves":
        return view | {"panels": _shared_panels(view["panels"], other["panels"])}
    if view["kind"] == "heads":
        theirs = {score["id"]: score for score in other.get("scores", ())}
        scores = view.get("scores", ())
        return view | {
            "scores": [_on_one_scale(score, theirs.get(score["id"])) for score in scores]
        }
    return _on_one_scale(view, other)


def _on_one_scale(view: View, other: View | None) -> View:
    """The view with a scale that covers both scales; diverging if either is."""
    scale, theirs = view.get("scale"), (other or {}).get("scale")
    if not isinstance(scale, Mapping) or not isinstance(theirs, Mapping):
        return view
    low, high = min(scale["low"], theirs["low"]), max(scale["high"], theirs["high"])
    kind = "diverging" if "diverging" in (scale["kind"], theirs["kind"]) else scale["kind"]
    helps = scale.get("helps")
    if kind == "diverging" and view.get("kind") != "bars":
        high = max(high, -low)
        low = -high
    return view | {"scale": {"kind": kind, "low": low, "high": high, "helps": helps}}


def _shared_panels(panels: Sequence[View], others: Sequence[View]) -> list[View]:
    """The panels with y axes that cover the ranges of both views."""
    theirs = {panel["title"]: panel for panel in others}
    shared: list[View] = []
    for panel in panels:
        both = [panel, *([theirs[panel["title"]]] if panel["title"] in theirs else [])]
        ends = [end for each in both for end in each["ends"]]
        shared.append(panel | {"ends": [min(ends), max(ends)]})
    return shared


def differences(
    views: Sequence[View], others: Sequence[View], run: str, score: str = ""
) -> list[View]:
    """The views A − B of the views with the same id in two lists, which the widget subtracts.

    Args:
        views: the views of A.
        others: the views of B; the differences are in their order.
        run: what A and B are, shown on each view with the runs of both.
        score: the score that a map of heads shows.
    """
    sides = {view["id"]: view for view in views}, {view["id"]: view for view in others}
    made: list[View] = []
    for id_ in dict.fromkeys([*sides[1], *sides[0]]):
        a, b = (side.get(id_) for side in sides)
        runs = [
            f"{name}: {side['run']}"
            for name, side in (("A", a), ("B", b))
            if side and side.get("run")
        ]
        title = f"A − B: {(b or a or {})['title']}"
        texts = {"id": id_, "title": title, "run": "; ".join([run, *runs])}
        made.append({"kind": "difference", **texts, "score": score, "a": a, "b": b})
    return made


# ---- drawings --------------------------------------------------------------------------------


def view_of(drawing: Drawing, id: str) -> View:
    """The view that shows a drawing."""
    return {"id": id, "title": drawing.title, **_view(drawing)}


@singledispatch
def _view(drawing: Drawing) -> View:
    """The fields of the view, after its id and title."""
    raise TypeError(f"A {type(drawing).__name__} is no drawing.")


@_view.register
def _(drawing: Heatmap) -> View:
    rows, columns = [*drawing.rows], [*drawing.columns]
    view: View = {
        "kind": "matrix",
        "rows": rows,
        "columns": columns,
        "row_axis": drawing.axes[0],
        "column_axis": drawing.axes[1],
        "unit": drawing.unit,
        "values": encoded(drawing.table),
        "scale": asdict(drawing.scale),
        "numbers": True,
        "pick": _pick(drawing.axes, rows, columns),
    }
    if drawing.text is not None:
        view["texts"] = [[*row] for row in drawing.text]
    if drawing.hover is not None and drawing.axes != PAIR_AXES:
        view["hover"] = [[text.split("\n") for text in row] for row in drawing.hover]
    if drawing.beside:
        view["beside"] = _named(drawing.beside)
    return view


def _named(tensors: Mapping[str, Any]) -> list[View]:
    """Further numbers of a view, with their titles."""
    return [{"title": name, "values": encoded(values)} for name, values in tensors.items()]


def _pick(titles: tuple[str, str], rows: Sequence[str], columns: Sequence[str]) -> str | None:
    if titles == PAIR_AXES:
        return "pair"
    numbered = all(
        list(labels) == [str(n) for n in range(len(labels))] for labels in (rows, columns)
    )
    return "head" if titles == HEAD_AXES and numbered else None


@_view.register
def _(drawing: Bars) -> View:
    marks = _named(drawing.marks)
    return {
        "kind": "bars",
        "labels": [*drawing.labels],
        "values": encoded(drawing.values),
        "low": encoded(drawing.low),
        "high": encoded(drawing.high),
        "unit": drawing.unit,
        "scale": asdict(drawing.scale),
        "pick": "row",
        **({"first": drawing.name, "marks": marks} if marks else {}),
    }


@_view.register
def _(drawing: Curves) -> View:
    return {
        "kind": "curves",
        "axis": drawing.axis,
        "log": drawing.log,
        "panels": [
            {
                "title": title,
                "unit": unit,
                "curves": [
                    asdict(line) | {"x": encoded(line.x), "y": encoded(line.y)} for line in lines
                ],
                "ends": [*ends([y for line in lines for y in line.y])],
            }
            for title, unit, lines in drawing.filled
        ],
        "marked": [float(x) for x in drawing.marked if isfinite(x)],
        "pick": None,
    }


@_view.register
def _(drawing: Network) -> View:
    by_token: View = {}
    if drawing.columns:
        by_token = {"columns": [*drawing.columns], "rows": [*drawing.rows]}
    if drawing.root is not None:
        by_token |= {"root": drawing.root, "least": drawing.least}
    return {
        "kind": "network",
        "nodes": [asdict(node) for node in drawing.nodes],
        "edges": [[*line] if line[-1] else [*line[:-1]] for line in drawing.lines],
        "unit": drawing.unit,
        "pick": "edge",
        **by_token,
    }


@_view.register
def _(drawing: Scatter) -> View:
    points = drawing.points
    groups = list(dict.fromkeys(drawing.groups)) or [""]
    return {
        "kind": "scatter",
        "x": encoded([x for x, *_ in points]),
        "y": encoded([y for _, y, *_ in points]),
        "labels": [label for *_, label, _ in points],
        "axes": [*drawing.axes],
        "units": [*drawing.units],
        "groups": groups,
        "group": [groups.index(group) for *_, group in points],
        "pick": "point",
    }
