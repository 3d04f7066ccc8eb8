"""A figure as SVG has the figure's cells, colours and labels."""

import re
from base64 import b64decode
from collections.abc import Iterator
from io import BytesIO
from xml.etree import ElementTree

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from PIL import Image, ImageColor

from analyses.results import Curve, Node, Scatter, bars, curves, heatmap, network, plotly_figure
from analyses.results.figures import ABOVE, BELOW, FAINT, LINES
from tools.figure_svg import MISSING, figure_svg

EVIL = "</svg><script>&amp;$x$"
BLUE, RED, GREEN = (colour.lower() for colour in LINES[:3])


def drawn(figure: go.Figure, kind: str) -> list[dict[str, str]]:
    """The attributes of each element of a kind, with those of its style."""
    root = ElementTree.fromstring(figure_svg(figure))
    return [
        element.attrib | dict(re.findall(r"([\w-]+): ([^;]+)", element.get("style", "")))
        for element in root.iter(f"{{http://www.w3.org/2000/svg}}{kind}")
    ]


def paths(figure: go.Figure, **style: str) -> Iterator[np.ndarray]:
    """The points of each path inside a panel that is filled, or drawn, in a colour."""
    for path in drawn(figure, "path"):
        if "clip-path" in path and style.items() <= path.items():
            yield np.array(re.findall(r"[ML] (\S+) (\S+)", path["d"]), dtype=float)


def pixels(figure: go.Figure) -> list[tuple[int, ...]]:
    """The colours of the cells of a heatmap, row by row."""
    data = drawn(figure, "image")[0]["{http://www.w3.org/1999/xlink}href"].partition(",")[2]
    cells = np.array(Image.open(BytesIO(b64decode(data))).convert("RGB"))
    return [tuple(cell) for cell in cells.reshape(-1, 3).tolist()]


def texts(figure: go.Figure) -> list[str]:
    root = ElementTree.fromstring(figure_svg(figure))
    return [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]


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
    high, low, middle, missing, half, again = pixels(figure)
    assert high == again
    assert len({high, low, middle, half}) == 4
    assert missing == ImageColor.getrgb(MISSING)
    assert middle == (247, 247, 247)


def test_labels_are_text():
    figure = a_heatmap([[0.0, 1.0]])
    assert "script" not in {
        element.tag for element in ElementTree.fromstring(figure_svg(figure)).iter()
    }
    assert {EVIL, f"{EVIL}0", f"{EVIL}1", "row", "column", "nats", "1", "0"} <= set(texts(figure))


def test_crowded_labels_are_left_out_and_none_is_drawn_twice():
    labels = texts(a_heatmap([[float(n) for n in range(200)]]))
    written = [label for label in labels if label.startswith(EVIL) and label != EVIL]
    assert 20 < len(written) < 100


def test_bars_are_as_long_as_their_values():
    values = torch.tensor([2.0, -1.0, 0.0])
    none = torch.full((3,), torch.nan)
    figure = bars(values, none, none, title="t", labels=["a", "b", "c"], unit="nats")
    lengths = [np.ptp(points[:, 0]) for points in paths(figure, fill=BLUE)]
    assert lengths[0] == pytest.approx(2 * lengths[1], rel=0.01)
    assert lengths[2] == 0
    assert {"a", "b", "c", "nats"} <= set(texts(figure))


def test_marks_on_bars_have_a_legend():
    values = torch.tensor([2.0, -1.0])
    settings = {"title": "t", "labels": ["a", "b"], "unit": "nats"}
    bare = bars(values, values, values, **settings)
    marked = bars(values, values, values, **settings, name="bar", marks={EVIL: values + 1})
    assert {"bar", EVIL} <= set(texts(marked))
    assert len(drawn(marked, "use")) > len(drawn(bare, "use"))


def test_curves_have_a_panel_for_each_axis():
    steps = [0, 1, 2]
    panels = {
        "loss": [Curve("one", steps, [3.0, 2.0, 1.0])],
        "score": [Curve("two", steps, [0.0, 0.5, 1.0]), Curve("three", steps, [0.0, 0.0, 0.0])],
    }
    figure = curves(panels, title="t", axis="step", units=("nats", "0 to 1"))
    (falling,), (rising,), (constant,) = (
        paths(figure, stroke=colour) for colour in (BLUE, RED, GREEN)
    )
    assert (np.diff(falling[:, 1]) > 0).all()
    assert (np.diff(rising[:, 1]) < 0).all()
    assert not np.ptp(constant[:, 1])
    assert min(rising[:, 1]) > max(falling[:, 1])  # in the panel below
    assert {"one", "two", "three", "loss (nats)", "score (0 to 1)"} <= set(texts(figure))


def test_a_graph_has_its_nodes_and_lines_as_wide_as_their_weights():
    nodes = [Node(EVIL, 0.0, 0.0), Node("b", 0.0, 1.0), Node("c", 1.0, 1.0)]
    figure = network(nodes, {(0, 1): 2.0, (0, 2): -1.0}, title="t", unit="nats")
    assert {EVIL, "b", "c"} <= set(texts(figure))
    assert len(drawn(figure, "use")) == 3
    wide, narrow = (path for path in drawn(figure, "path") if path.get("stroke") in (ABOVE, BELOW))
    assert float(wide["stroke-width"]) > float(narrow["stroke-width"])
    assert wide["stroke"] != narrow["stroke"]
    (points,) = paths(figure, stroke=wide["stroke"])
    assert points[0, 1] > points[-1, 1]  # inputs are at the bottom


def test_a_logarithmic_axis():
    figure = curves({"y": [Curve("one", [1, 10, 100], [0.0] * 3)]}, title="t", axis="x", units=[""])
    figure.update_xaxes(type="log")
    (points,) = paths(figure, stroke=BLUE)
    first, middle, last = points[:, 0]
    assert middle - first == pytest.approx(last - middle, abs=0.2)
    assert {"1", "10", "100"} <= set(texts(figure))


def test_another_kind_of_figure_is_named():
    with pytest.raises(TypeError, match="No drawing of a pie"):
        figure_svg(go.Figure(go.Pie(values=[1])))


def test_a_curve_of_many_points_keeps_its_highest():
    """It has a few points a pixel, the extremes among them; a short curve keeps every point."""
    steps = list(range(20_000))
    values = [float(step % 7) for step in steps]
    values[12_345] = 100.0
    figure = curves({"y": [Curve("one", steps, values)]}, title="t", axis="step", units=[""])
    (points,) = paths(figure, stroke=BLUE)
    assert len(points) <= 4 * 720
    others = np.delete(points[:, 1], points[:, 1].argmin())
    assert np.ptp(others) < 0.1 * np.ptp(points[:, 1])
    few = curves({"y": [Curve("one", [0, 1, 2], [1.0, 5.0, 2.0])]}, title="t", axis="x", units=[""])
    (points,) = paths(few, stroke=BLUE)
    assert len(points) == 3


def test_equal_figures_are_drawn_as_equal_bytes():
    assert figure_svg(a_heatmap([[0.0, 1.0]])) == figure_svg(a_heatmap([[0.0, 1.0]]))


def test_an_axis_of_curves_is_named_and_numbered():
    panels = {"y": [Curve("one", [0, 12_000], [0.0, 1.0])], "z": [Curve("two", [0, 1], [0.0, 1.0])]}
    figure = curves(panels, title="t", axis="training step", units=["", ""])
    assert {"training step", "0", "12000"} <= set(texts(figure))


def test_marked_places_of_curves_are_dotted_lines():
    panels = {"y": [Curve("one", [0, 10], [0.0, 1.0])]}
    for marked in ([], [5], [2, 5]):
        figure = curves(panels, title="t", axis="x", units=[""], marked=marked)
        dotted = list(paths(figure, stroke=FAINT))
        assert len(dotted) == len(marked)
        assert all(not np.ptp(points[:, 0]) for points in dotted)


def test_a_scatter_plot_has_a_point_for_each_value_in_the_colour_of_its_group():
    drawing = Scatter(
        torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0]),
        torch.tensor([4.0, 0.0, 1.0, 3.0, 2.0]),
        title=EVIL,
        labels=["a", "b", "c", "d", EVIL],
        axes=("x", "y"),
        units=("nats", "tokens"),
        groups=["L0", "L0", "L1", "L1", "L2"],
    )
    figure = plotly_figure(drawing)
    marks = [path for path in drawn(figure, "use") if "clip-path" not in path]
    colours = [path["fill"] for path in drawn(figure, "use") if "fill" in path]
    assert len({*colours}) == 3
    assert len([mark for mark in marks if "fill" in mark]) >= 5
    labels = texts(figure)
    assert {"L0", "L1", "L2", "x (nats)", "y (tokens)", EVIL} <= {*labels}
    assert not list(paths(figure, stroke=BLUE))  # no line joins the points
