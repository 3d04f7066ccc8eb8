"""Views of figures (of every analysis, in tests/analyses/test_results.py), and shared scales."""

import json
from html import escape

import numpy as np
import torch
from pictured import check_view, numbers

from analyses.results import Bars, Curve, Curves, Heatmap, plotly_figure
from apps.widget.pictures import share_scales, view_of

EVIL = "</script><img src=x onerror=alert(1)>&amp;"


def test_bars_hold_what_they_show():
    """No result in tests/analyses/test_results.py draws them."""
    values, low, high = (
        torch.tensor(x) for x in ([1.0, -2.0], [0.5, float("nan")], [1.5, float("nan")])
    )
    drawing = Bars(values, low, high, title="t", labels=["a", EVIL], unit="nats")
    view = view_of(drawing, "own")
    check_view(view, plotly_figure(drawing))
    assert view["scale"] == {"kind": "diverging", "low": -2.0, "high": 1.5, "helps": None}
    assert np.isnan(numbers(view["low"])[1])


def test_marks_on_bars_are_in_the_scale_and_in_hover_texts():
    """And bars without marks have no legend."""
    values = torch.tensor([1.0, -0.5])
    marks = {"up": torch.tensor([3.0, 0.5]), EVIL: torch.tensor([2.0, float("nan")])}
    drawing = Bars(
        values,
        values - 1,
        values + 1,
        title="t",
        labels=["a", "b"],
        unit="u",
        name="d",
        marks=marks,
    )
    figure, view = plotly_figure(drawing), view_of(drawing, "own")
    check_view(view, figure)
    assert view["scale"] == {"kind": "diverging", "low": -1.5, "high": 3.0, "helps": None}
    assert [trace.name for trace in figure.data] == ["d", "up", escape(EVIL, quote=False)]
    assert len({trace.marker.symbol for trace in figure.data[1:]}) == 2
    assert figure.data[0].customdata[0] == ["a", "+1.00", "+3.00", "+2.00"]
    assert {trace.hovertemplate for trace in figure.data} == {figure.data[0].hovertemplate}
    bare = Bars(values, values, values, title="t", labels=["a", "b"], unit="u")
    assert "marks" not in view_of(bare, "own")
    assert len(plotly_figure(bare).data) == 1


def test_numbers_beside_those_of_a_cell_are_in_its_hover_text():
    table = torch.tensor([[1.0, float("nan")]])
    drawing = Heatmap(
        table, title="t", rows=["r"], columns=["a", "b"], axes=("r", "c"), unit="u",
        diverging=True, beside={EVIL: 2 * table},
    )  # fmt: skip
    view, figure = view_of(drawing, "own"), plotly_figure(drawing)
    check_view(view, figure)
    assert numbers(view["beside"][0]["values"])[0, 0] == 2.0
    assert figure.data[0].customdata[0][0] == ["+1.00", "+2.00"]
    assert f"<br>{escape(EVIL, quote=False)} %{{customdata[1]}} u" in figure.data[0].hovertemplate


def test_texts_come_back_as_they_were():
    drawing = Heatmap(
        torch.eye(1), title=EVIL, rows=[EVIL], columns=[EVIL], axes=("row", "column"), unit="u",
        text=[[EVIL]], hover=[[f"{EVIL}\n1"]],
    )  # fmt: skip
    view = view_of(drawing, "own")
    assert [view["title"], *view["rows"], *view["columns"], *view["texts"][0]] == [EVIL] * 4
    assert view["hover"] == [[[EVIL, "1"]]]
    assert plotly_figure(drawing).data[0].hovertext == ([f"{escape(EVIL, quote=False)}<br>1"],)
    lines = view_of(
        Curves({"p": [Curve(EVIL, [1], [2.0])]}, title=EVIL, axis="x", units=("u (per v)",)),
        "own",
    )
    assert lines["panels"][0]["curves"][0]["name"] == EVIL
    assert (lines["panels"][0]["title"], lines["panels"][0]["unit"]) == ("p", "u (per v)")


def test_a_cell_without_a_value_has_none():
    table = torch.tensor([[1.0, float("nan")]])
    drawing = Heatmap(table, title="t", rows=["r"], columns=["a", "b"], axes=("r", "c"), unit="u")
    assert np.isnan(numbers(view_of(drawing, "own")["values"])[0, 1])


def test_only_a_map_of_heads_is_picked_as_heads():
    def pick(axes, columns):
        table = torch.zeros(2, len(columns))
        return view_of(
            Heatmap(table, title="t", rows=["0", "1"], columns=columns, axes=axes, unit="u"),
            "own",
        )["pick"]

    assert pick(("layer", "head"), ["0", "1", "2"]) == "head"
    assert pick(("layer", "head"), ["H0", "H1", "MLP"]) is None
    assert pick(("layer", "position"), ["0", "1"]) is None
    assert pick(("query", "key"), ["a", "b"]) == "pair"


def matrix_of(*rows: list[float], diverging: bool = False):
    table = torch.tensor(rows)
    labels = [str(n) for n in range(len(rows[0]))]
    axes = ("layer", "head")
    drawing = Heatmap(
        table, title="t", rows=["0"] * len(rows), columns=labels, axes=axes, unit="u",
        diverging=diverging,
    )  # fmt: skip
    return [view_of(drawing, "m")]


def test_shared_scales_are_those_of_both():
    first, second = share_scales(matrix_of([1.0, 2.0]), matrix_of([5.0, 0.0]))
    expected = {"kind": "sequential", "low": 0.0, "high": 5.0, "helps": None}
    assert first[0]["scale"] == second[0]["scale"] == expected
    first, second = share_scales(matrix_of([1.0, 2.0]), matrix_of([-3.0, 1.0], diverging=True))
    expected = {"kind": "diverging", "low": -3.0, "high": 3.0, "helps": None}
    assert first[0]["scale"] == second[0]["scale"] == expected


def test_scales_of_other_views_stay():
    first, second = matrix_of([1.0]), [{**matrix_of([5.0])[0], "id": "elsewhere"}]
    assert share_scales(first, second) == (first, second)


def test_curves_and_scores_share_their_ranges():
    def line(*y):
        curve = Curve("c", list(range(len(y))), list(y))
        return [view_of(Curves({"p": [curve]}, title="t", axis="x", units=["u"]), "c")]

    first, second = share_scales(line(1.0, 2.0), line(-1.0, 1.5))
    assert first[0]["panels"][0]["ends"] == second[0]["panels"][0]["ends"] == [-1.0, 2.0]

    def heads(high):
        scale = {"kind": "diverging", "low": -high, "high": high, "helps": "below"}
        score = {"id": "s", "scale": scale}
        return [{"kind": "heads", "id": "h", "scores": [score]}]

    first, second = share_scales(heads(1.0), heads(3.0))
    assert first[0]["scores"][0]["scale"] == second[0]["scores"][0]["scale"]
    assert first[0]["scores"][0]["scale"]["high"] == 3.0
    assert first[0]["scores"][0]["scale"]["helps"] == "below"


def test_a_view_is_json_whatever_its_numbers():
    lines = [Curve("c", [1], [float("inf")])]
    drawing = Curves({"p": lines}, title="t", axis="x", units=["u"], marked=[float("nan")])
    view = view_of(drawing, "own")
    assert json.loads(json.dumps(view, allow_nan=False)) == view
    assert np.isinf(numbers(view["panels"][0]["curves"][0]["y"]))
