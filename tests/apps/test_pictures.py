"""Views of figures: the same numbers, titles and units; scales that two pictures share."""

import base64
from html import unescape

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from analyses.figures import Curve, bars, curves, heatmap
from apps.presentation import figures
from apps.widget.pictures import share_scales, views_of_figure
from interp.errors import InvalidInput
from tests.analyses.test_results import MADE, made

EVIL = "</script><img src=x onerror=alert(1)>&amp;"


def numbers(sent) -> np.ndarray:
    array = np.frombuffer(base64.b64decode(sent["data"]), sent["dtype"])
    return array.reshape(sent["shape"])


def as_sent(values) -> np.ndarray:
    return np.array(values, dtype=np.float64).astype(np.float32)


def only_view(figure):
    (view,) = views_of_figure(figure, "own")
    assert view["id"] == "own"
    return view


def check_matrix(view, figure):
    drawn = figure.data[0]
    np.testing.assert_array_equal(numbers(view["values"]), as_sent(drawn.z))
    assert view["unit"] == drawn.colorbar.title.text
    assert [view["scale"]["low"], view["scale"]["high"]] == [drawn.zmin, drawn.zmax]
    for labels, axis in (
        (view["rows"], figure.layout.yaxis),
        (view["columns"], figure.layout.xaxis),
    ):
        assert labels == [unescape(text) for text in axis.ticktext]
    if drawn.texttemplate:
        assert view["texts"] == [[unescape(text) for text in row] for row in drawn.text]


def check_bars(view, figure):
    drawn = figure.data[0]
    values = as_sent(drawn.x)
    np.testing.assert_array_equal(numbers(view["values"]), values)
    np.testing.assert_allclose(numbers(view["high"]) - values, drawn.error_x.array, atol=1e-6)
    np.testing.assert_allclose(values - numbers(view["low"]), drawn.error_x.arrayminus, atol=1e-6)
    assert view["unit"] == figure.layout.xaxis.title.text
    assert view["labels"] == [unescape(text) for text in figure.layout.yaxis.ticktext]


def check_curves(view, figure):
    drawn = [(panel, curve) for panel in view["panels"] for curve in panel["curves"]]
    assert len(drawn) == len(figure.data)
    for (panel, curve), trace in zip(drawn, figure.data, strict=True):
        np.testing.assert_array_equal(numbers(curve["x"]), as_sent(trace.x))
        np.testing.assert_array_equal(numbers(curve["y"]), as_sent(trace.y))
        assert curve["name"] == unescape(trace.name)
        axis = figure.layout[(trace.yaxis or "y").replace("y", "yaxis")]
        assert axis.title.text == f"{panel['title']} ({panel['unit']})"
    assert {shape.x0 for shape in figure.layout.shapes} == set(view["marked"])
    assert view["log"] == (figure.layout.xaxis.type == "log")


def check_network(view, figure):
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    assert len(lines) == len(view["edges"])
    for (start, end, weight), trace in zip(view["edges"], lines, strict=True):
        one, other = (view["nodes"][n] for n in (start, end))
        text = f"{one['name']} → {other['name']}: {weight:.4g} {view['unit']}"
        assert unescape(trace.hovertemplate.removesuffix("<extra></extra>")) == text
        assert [trace.x[0], trace.y[0], trace.x[2], trace.y[2]] == [
            one["x"], one["y"], other["x"], other["y"],
        ]  # fmt: skip
    *_, labels, names = figure.data
    assert [unescape(text) for text in names.text] == [node["name"] for node in view["nodes"]]
    shown = [node["label"] for node in view["nodes"] if node["label"]]
    assert [unescape(text) for text in labels.text or ()] == shown


CHECKS = {
    "matrix": check_matrix,
    "bars": check_bars,
    "curves": check_curves,
    "network": check_network,
}


@pytest.mark.parametrize("name", MADE)
def test_a_view_holds_what_its_figure_shows(name):
    for figure in figures(made(name)):
        view = only_view(figure)
        assert view["title"] == unescape(figure.layout.title.text)
        CHECKS[view["kind"]](view, figure)


def test_bars_hold_what_they_show():
    """No result of the table above draws them."""
    values, low, high = (
        torch.tensor(x) for x in ([1.0, -2.0], [0.5, float("nan")], [1.5, float("nan")])
    )
    figure = bars(values, low, high, title="t", labels=["a", EVIL], unit="nats")
    view = only_view(figure)
    check_bars(view, figure)
    assert view["scale"] == {"kind": "diverging", "low": -2.0, "high": 1.5}
    assert np.isnan(numbers(view["low"])[1])


def test_texts_come_back_as_they_were():
    figure = heatmap(
        torch.eye(1), title=EVIL, rows=[EVIL], columns=[EVIL], axes=("row", "column"), unit="u",
        text=[[EVIL]],
    )  # fmt: skip
    view = only_view(figure)
    assert [view["title"], *view["rows"], *view["columns"], *view["texts"][0]] == [EVIL] * 4
    lines = only_view(
        curves({"p": [Curve(EVIL, [1], [2.0])]}, title=EVIL, axis="x", units=("u (per v)",))
    )
    assert lines["panels"][0]["curves"][0]["name"] == EVIL
    assert (lines["panels"][0]["title"], lines["panels"][0]["unit"]) == ("p", "u (per v)")


def test_a_cell_without_a_value_has_none():
    table = torch.tensor([[1.0, float("nan")]])
    figure = heatmap(table, title="t", rows=["r"], columns=["a", "b"], axes=("r", "c"), unit="u")
    assert np.isnan(numbers(only_view(figure)["values"])[0, 1])


@pytest.mark.parametrize(
    "figure",
    [go.Figure(go.Pie(values=[1])), go.Figure(go.Scatter(x=[1], y=[1])), go.Figure()],
)
def test_a_figure_of_another_form_is_refused_by_name(figure):
    kind = figure.data[0].type if figure.data else "no traces"
    with pytest.raises(InvalidInput, match=f"A figure of {kind} has no view"):
        views_of_figure(figure, "own")


def test_only_a_map_of_heads_is_picked_as_heads():
    def pick(axes, columns):
        table = torch.zeros(2, len(columns))
        return only_view(
            heatmap(table, title="t", rows=["0", "1"], columns=columns, axes=axes, unit="u")
        )["pick"]

    assert pick(("layer", "head"), ["0", "1", "2"]) == "head"
    assert pick(("layer", "head"), ["H0", "H1", "MLP"]) is None
    assert pick(("layer", "position"), ["0", "1"]) is None
    assert pick(("query", "key"), ["a", "b"]) == "pair"


def matrix_of(*rows: list[float], diverging: bool = False):
    table = torch.tensor(rows)
    labels = [str(n) for n in range(len(rows[0]))]
    axes = ("layer", "head")
    return views_of_figure(
        heatmap(
            table, title="t", rows=["0"] * len(rows), columns=labels, axes=axes, unit="u",
            diverging=diverging,
        ), "m",
    )  # fmt: skip


def test_shared_scales_are_those_of_both():
    one, other = share_scales(matrix_of([1.0, 2.0]), matrix_of([5.0, 0.0]))
    assert one[0]["scale"] == other[0]["scale"] == {"kind": "sequential", "low": 0.0, "high": 5.0}
    one, other = share_scales(matrix_of([1.0, 2.0]), matrix_of([-3.0, 1.0], diverging=True))
    assert one[0]["scale"] == other[0]["scale"] == {"kind": "diverging", "low": -3.0, "high": 3.0}


def test_scales_of_other_views_stay():
    one, other = matrix_of([1.0]), [{**matrix_of([5.0])[0], "id": "elsewhere"}]
    assert share_scales(one, other) == (one, other)


def test_curves_and_scores_share_their_ranges():
    def line(*y):
        curve = Curve("c", list(range(len(y))), list(y))
        return views_of_figure(curves({"p": [curve]}, title="t", axis="x", units=["u"]), "c")

    one, other = share_scales(line(1.0, 2.0), line(-1.0, 1.5))
    assert one[0]["panels"][0]["ends"] == other[0]["panels"][0]["ends"] == [-1.0, 2.0]

    def heads(high):
        score = {"id": "s", "scale": {"kind": "diverging", "low": -high, "high": high}}
        return [{"kind": "heads", "id": "h", "scores": [score]}]

    one, other = share_scales(heads(1.0), heads(3.0))
    assert one[0]["scores"][0]["scale"] == other[0]["scores"][0]["scale"]
    assert one[0]["scores"][0]["scale"]["high"] == 3.0
