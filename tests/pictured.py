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
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    assert len(lines) == len(view["edges"])
    places = places_of(weight for *_, weight in view["edges"])
    for (start, end, weight), trace in zip(view["edges"], lines, strict=True):
        source, target = (view["nodes"][n] for n in (start, end))
        text = f"{source['name']} → {target['name']}: {signed(weight, places)} {view['unit']}"
        assert unescape(trace.hovertemplate.removesuffix("<extra></extra>")) == text
        assert [trace.x[0], trace.y[0], trace.x[2], trace.y[2]] == [
            source["x"], source["y"], target["x"], target["y"],
        ]  # fmt: skip
    *_, labels, names = figure.data
    assert [unescape(text) for text in names.text] == [node["name"] for node in view["nodes"]]
    drawn = [node["label"] for node in view["nodes"] if node["label"]]
    assert [unescape(text) for text in labels.text or ()] == drawn


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
