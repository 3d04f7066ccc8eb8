"""What a view of the widget must share with the figure that it is made of."""

import base64
from html import unescape

import numpy as np

from analyses.results.number_text import places_of, signed


def numbers(sent) -> np.ndarray:
    array = np.frombuffer(base64.b64decode(sent["data"]), sent["dtype"])
    return array.reshape(sent["shape"])


def as_sent(values) -> np.ndarray:
    return np.array(values, dtype=np.float64).astype(np.float32)


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
    for beside in view.get("beside", ()):
        assert f"{beside['title']} %{{customdata[" in unescape(drawn.hovertemplate)
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
    for mark, trace in zip(view.get("marks", ()), figure.data[1:], strict=True):
        assert mark["title"] == unescape(trace.name)
        np.testing.assert_array_equal(numbers(mark["values"]), as_sent(trace.x))
        assert trace.y == drawn.y


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
    """Of a graph with a root, the figure has the edges of at least a size that lead to it."""
    lines = {tuple(trace.meta["edge"]): trace for trace in figure.data if trace.mode == "lines"}
    drawn = [edge for edge in view["edges"] if tuple(edge) in lines]
    assert len(lines) == len(drawn)
    assert "root" in view or len(drawn) == len(view["edges"])
    assert all(abs(weight) >= view.get("least", 0) for _, _, weight, *_ in drawn)
    places = places_of(weight for _, _, weight, *_ in drawn)
    for start, end, weight, *letters in drawn:
        letter, trace = "".join(letters), lines[start, end, weight, *letters]
        assert trace.line.dash == ("dash" if letter in ("q", "k") else None)
        source, target = (view["nodes"][n] for n in (start, end))
        short, at, pos = target["name"].partition("@")
        reader = f"{short}.{letter}{at}{pos}" if letter else target["name"]
        text = f"{source['name']} → {reader}: {signed(weight, places)} {view['unit']}"
        assert unescape(trace.hovertemplate.removesuffix("<extra></extra>")) == text
        if "columns" not in view:
            assert [trace.x[0], trace.y[0], trace.x[2], trace.y[2]] == [
                source["x"], source["y"], target["x"], target["y"],
            ]  # fmt: skip
    *_, labels, names = figure.data
    drawn_nodes = {end for edge in drawn for end in edge[:2]} | {view.get("root")}
    nodes = [x for n, x in enumerate(view["nodes"]) if "root" not in view or n in drawn_nodes]
    assert [unescape(text) for text in names.text] == [x["name"].partition("@")[0] for x in nodes]
    drawn_labels = [node["label"] for node in nodes if node["label"]]
    assert [unescape(text) for text in labels.text or ()] == drawn_labels


def check_scatter(view, figure):
    (drawn,) = figure.data
    for name, values in (("x", drawn.x), ("y", drawn.y)):
        np.testing.assert_array_equal(numbers(view[name]), as_sent(values))
    assert view["labels"] == [unescape(hover[0]) for hover in drawn.customdata]
    assert [view["groups"][n] for n in view["group"]] == drawn.meta["groups"]
    axes = figure.layout.xaxis, figure.layout.yaxis
    titles = [unescape(axis.title.text) for axis in axes]
    assert titles == [f"{a} ({u})" for a, u in zip(view["axes"], view["units"], strict=True)]


CHECKS = {
    "matrix": check_matrix,
    "bars": check_bars,
    "curves": check_curves,
    "network": check_network,
    "scatter": check_scatter,
}


def check_view(view, figure):
    assert view["title"] == unescape(figure.layout.title.text)
    CHECKS[view["kind"]](view, figure)
