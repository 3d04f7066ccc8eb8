"""A figure as SVG has the figure's cells, colours and labels."""

from xml.etree import ElementTree

import plotly.graph_objects as go
import pytest
import torch

from analyses.results import Curve, Node, bars, curves, heatmap, network
from tools.figure_svg import MISSING, figure_svg

EVIL = "</svg><script>&amp;"


def drawn(figure: go.Figure, kind: str) -> list[dict[str, str]]:
    """The attributes of each element of a kind."""
    root = ElementTree.fromstring(figure_svg(figure))
    return [one.attrib for one in root.iter(f"{{http://www.w3.org/2000/svg}}{kind}")]


def texts(figure: go.Figure) -> list[str]:
    root = ElementTree.fromstring(figure_svg(figure))
    return [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}text")]


def a_heatmap(values: list[list[float]], **settings: object) -> go.Figure:
    rows, columns = ([f"{EVIL}{n}" for n in range(size)] for size in (len(values), len(values[0])))
    return heatmap(
        torch.tensor(values),
        title=EVIL,
        rows=rows,
        columns=columns,
        axes=("row", "column"),
        unit="nats",
        **settings,
    )


def test_cells_of_a_heatmap_have_the_colours_of_their_values():
    figure = a_heatmap([[1.0, -1.0, 0.0], [float("nan"), 0.5, 1.0]], diverging=True)
    colours = [one["fill"] for one in drawn(figure, "rect")][1:7]  # after the paper
    high, low, middle, missing, half, again = colours
    assert high == again
    assert len({high, low, middle, half}) == 4
    assert missing == MISSING
    assert middle == "rgb(247, 247, 247)"


def test_labels_are_text():
    figure = a_heatmap([[0.0, 1.0]])
    assert "script" not in {one.tag for one in ElementTree.fromstring(figure_svg(figure)).iter()}
    assert {EVIL, f"{EVIL}0", f"{EVIL}1", "row", "column", "nats", "1", "0"} <= set(texts(figure))


def test_crowded_labels_are_left_out_and_none_is_drawn_twice():
    labels = texts(a_heatmap([[float(n) for n in range(200)]]))
    shown = [label for label in labels if label.startswith(EVIL) and label != EVIL]
    assert 20 < len(shown) < 100


def test_bars_are_as_long_as_their_values():
    values = torch.tensor([2.0, -1.0, 0.0])
    none = torch.full((3,), torch.nan)
    figure = bars(values, none, none, title="t", labels=["a", "b", "c"], unit="nats")
    _, *lengths = (float(one["width"]) for one in drawn(figure, "rect"))
    assert lengths[0] == pytest.approx(2 * lengths[1], rel=0.01)
    assert lengths[2] == 0
    assert {"a", "b", "c", "nats"} <= set(texts(figure))


def test_curves_have_a_panel_for_each_axis():
    steps = [0, 1, 2]
    panels = {
        "loss": [Curve("one", steps, [3.0, 2.0, 1.0])],
        "score": [Curve("two", steps, [0.0, 0.5, 1.0]), Curve("three", steps, [0.0, 0.0, 0.0])],
    }
    figure = curves(panels, title="t", axis="step", units=("nats", "0 to 1"))
    lines = [one["points"] for one in drawn(figure, "polyline")]
    assert len(lines) == 3
    heights = [[float(point.split(",")[1]) for point in line.split()] for line in lines]
    assert heights[0] == sorted(heights[0])  # it falls
    assert heights[1] == sorted(heights[1], reverse=True)
    assert min(heights[1]) > max(heights[0])  # in the panel below
    assert {"one", "two", "three", "loss (nats)", "score (0 to 1)"} <= set(texts(figure))


def test_a_graph_has_its_nodes_and_lines_as_wide_as_their_weights():
    nodes = [Node(EVIL, 0.0, 0.0), Node("b", 0.0, 1.0), Node("c", 1.0, 1.0)]
    figure = network(nodes, {(0, 1): 2.0, (0, 2): -1.0}, title="t", unit="nats")
    assert {EVIL, "b", "c"} <= set(texts(figure))
    assert len(drawn(figure, "circle")) == 3
    one, other = drawn(figure, "line")
    assert float(one["stroke-width"]) > float(other["stroke-width"])
    assert one["stroke"] != other["stroke"]
    assert float(one["y1"]) > float(one["y2"])  # inputs are at the bottom


def test_a_logarithmic_axis():
    figure = curves({"y": [Curve("one", [1, 10, 100], [0.0] * 3)]}, title="t", axis="x", units=[""])
    figure.update_xaxes(type="log")
    (line,) = drawn(figure, "polyline")
    first, middle, last = (float(point.split(",")[0]) for point in line["points"].split())
    assert middle - first == pytest.approx(last - middle, abs=0.2)


def test_another_kind_of_figure_is_named():
    with pytest.raises(TypeError, match="No drawing of a pie"):
        figure_svg(go.Figure(go.Pie(values=[1])))


def test_a_curve_of_many_points_keeps_its_highest_and_lowest():
    """At most two points a pixel, the extremes among them; a short curve keeps every point."""
    steps = list(range(20_000))
    values = [float(step % 7) for step in steps]
    values[12_345] = 100.0
    figure = curves({"y": [Curve("one", steps, values)]}, title="t", axis="step", units=[""])
    (line,) = drawn(figure, "polyline")
    heights = [float(point.split(",")[1]) for point in line["points"].split()]
    assert len(heights) <= 2 * 720
    assert min(heights) == 56.0
    assert heights.count(56.0) == 1
    few = curves({"y": [Curve("one", [0, 1, 2], [1.0, 5.0, 2.0])]}, title="t", axis="x", units=[""])
    assert len(drawn(few, "polyline")[0]["points"].split()) == 3


def test_an_axis_of_curves_is_named_and_numbered():
    panels = {"y": [Curve("one", [0, 12_000], [0.0, 1.0])], "z": [Curve("two", [0, 1], [0.0, 1.0])]}
    figure = curves(panels, title="t", axis="training step", units=["", ""])
    assert {"training step", "0", "12000"} <= set(texts(figure))


def test_marked_places_of_curves_are_dotted_lines():
    panels = {"y": [Curve("one", [0, 10], [0.0, 1.0])]}
    for marked in ([], [5], [2, 5]):
        figure = curves(panels, title="t", axis="x", units=[""], marked=marked)
        dotted = [one for one in drawn(figure, "line") if "stroke-dasharray" in one]
        assert len(dotted) == len(marked)
        assert all(one["x1"] == one["x2"] for one in dotted)
