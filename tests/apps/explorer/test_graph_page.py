"""The page Graph: the graph is that of the analysis, and units can be grouped and scaled."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from answered import answers, loaded, numbers, opened, views_by_id
from architectures import build, covering

import interp
from analyses import attribution_graph, scale_units
from analyses.results.number_text import number
from apps.explorer import offered
from apps.explorer.pages.graph import (
    DICTIONARIES,
    GRAPH_PAGE,
    SCALED,
    UNIT_TEXTS,
    grouped,
    groups_of,
)
from apps.explorer.view import Head, from_address

pytestmark = pytest.mark.slow

NAME = "python-4l"
ARROW = " → "


@pytest.fixture(scope="module")
def first():
    """The page of features, with the answers to its first questions."""
    view = opened(GRAPH_PAGE, NAME, units="features")
    results, errors = answers(GRAPH_PAGE, view)
    assert errors == {}
    return view, results


def drawn(view, results):
    return views_by_id(GRAPH_PAGE, view, results)


def pick(view, name):
    return {"view": view, "pick": "node", "row": 0, "name": name}


def largest_feature(graph):
    units = [node for node in graph.nodes if node.kind == "feature"]
    return max(units, key=lambda node: node.influence)


UNITS = ["neurons", "features", "heads and neurons", "heads and MLPs"]


@pytest.mark.parametrize("units", covering(UNITS, ["features", "heads and MLPs"]))
def test_the_graph_is_that_of_the_analysis(units):
    view = opened(GRAPH_PAGE, NAME, units=units)
    results, errors = answers(GRAPH_PAGE, view)
    assert errors == {}
    model = loaded(NAME)
    if units == "features":
        transcoders = [interp.dictionaries.load(name) for name in offered.dictionaries_of(NAME)]
        model = interp.with_dictionaries(model, transcoders)
    kinds = units.lower().split(" and ")
    expected = attribution_graph(model, view.text, targets=view.target, units=kinds)
    network = drawn(view, results)["graph"]
    assert [node["name"] for node in network["nodes"]] == [
        node.name for node in expected.drawing().nodes
    ]
    weights = [weight for _, _, weight in network["edges"]]
    np.testing.assert_allclose(weights, [line[2] for line in expected.drawing().lines], rtol=1e-4)
    assert network["nodes"][network["root"]]["name"].startswith("logit")
    assert expected.headline()[:40] in network["note"]
    without_check = drawn(view, {"graph": results["graph"]})["graph"]
    assert "predicted removals" not in without_check["note"]
    assert [node["name"] for node in without_check["nodes"]] == [
        node["name"] for node in network["nodes"]
    ]


def test_a_chosen_unit_has_its_edges_its_texts_and_what_the_answer_becomes_without_it(first):
    view, results = first
    graph = results["graph"]
    node = largest_feature(graph)
    view = GRAPH_PAGE.on_pick(view, pick("graph", node.name))
    assert {SCALED, UNIT_TEXTS}.isdisjoint(
        {ask.name for ask in GRAPH_PAGE.asks(view, loaded(NAME))}
    )
    view = replace(view, asked=(SCALED, UNIT_TEXTS))
    assert from_address(view.to_address()) == (view, ())
    more, errors = answers(GRAPH_PAGE, view)
    assert errors == {}
    views = drawn(view, more)
    names = [row[0] for row in views["around"]["rows"]]
    assert all(node.name in name.split(ARROW) for name in names)
    assert any(name.startswith(node.name) for name in names)
    assert any(name.endswith(node.name) for name in names)
    rows = dict(views[SCALED]["rows"])
    predicted = float(graph.predicted_effect([node.name])[0])
    assert predicted == pytest.approx(-node.effect, rel=1e-4)
    assert rows["change of the logit, predicted by the graph"] == number(predicted, 3, sign=True)
    measured = scale_units(
        interp.with_dictionaries(
            loaded(NAME),
            [interp.dictionaries.load(name) for name in offered.dictionaries_of(NAME)],
        ),
        view.text,
        [node.name],
        targets=view.target,
    )
    assert rows["measured"] == number(measured.effect[0], 3, sign=True)
    assert any(name.startswith(UNIT_TEXTS) for name in views)


def test_a_chosen_edge_has_the_heads_that_carry_it_and_the_pattern_of_one(first):
    view, results = first
    graph = results["graph"]
    frame = graph.to_frame()
    of_head = frame[frame["carrier"].str.startswith("L") & frame["writer"].str.contains("@")]
    edge = of_head.iloc[0]
    view = GRAPH_PAGE.on_pick(view, pick("graph", edge["name"]))
    bars = drawn(view, results)["carriers"]
    assert bars["labels"][0] == edge["carrier"]
    parts = graph.terms[[ARROW.join(ends) for ends in graph.edges].index(edge["name"])]
    np.testing.assert_allclose(
        numbers(bars["values"]),
        sorted(parts[parts != 0].tolist(), key=abs, reverse=True)[: len(bars["labels"])],
        rtol=1e-5,
    )
    view = GRAPH_PAGE.on_pick(view, pick("carriers", edge["carrier"]))
    assert view.head == Head.of(edge["carrier"])
    assert view.query == int(edge["reader"].rpartition("@")[2])
    more, errors = answers(GRAPH_PAGE, view)
    assert errors == {}
    assert "graph_pattern" in drawn(view, more)
    assert GRAPH_PAGE.on_pick(view, pick("carriers", "bypass")) == view


def test_a_head_that_is_a_node_has_its_pattern_at_its_position():
    view = GRAPH_PAGE.on_pick(opened(GRAPH_PAGE, NAME, units="heads"), pick("graph", "L3H1@12"))
    assert (view.head, view.query) == (Head(3, 1), 12)
    assert "graph pattern" in {asked.name for asked in GRAPH_PAGE.asks(view, loaded(NAME))}
    view = GRAPH_PAGE.on_pick(view, pick("graph", "L3N1@12"))
    assert "graph pattern" not in {asked.name for asked in GRAPH_PAGE.asks(view, loaded(NAME))}


def test_an_mlp_that_is_a_node_is_scaled_and_has_its_texts():
    """Heads and MLPs are the units of a view that names none."""
    view = opened(GRAPH_PAGE, NAME)
    results, errors = answers(GRAPH_PAGE, view)
    assert errors == {}
    ranked = sorted(results["graph"].nodes, key=lambda node: -node.influence)
    name = next(node.name for node in ranked if "MLP@" in node.name)
    view = replace(view, node=name, asked=(SCALED, UNIT_TEXTS))
    results, errors = answers(GRAPH_PAGE, view)
    assert errors == {}
    assert results[SCALED].scaled == (name,)
    assert float(results[SCALED].effect.abs().max()) > 1e-3
    assert {SCALED, "around", f"{UNIT_TEXTS}_0"} <= {*drawn(view, results)}


def test_a_group_is_one_node_and_is_scaled_together(first):
    view, results = first
    graph = results["graph"]
    ranked = sorted(graph.nodes, key=lambda node: -node.influence)
    names = [node.name for node in ranked if node.kind == "feature"][:2]
    view = replace(view, groups=(f"both={'+'.join(names)}",), node="both", asked=(SCALED,))
    more, errors = answers(GRAPH_PAGE, view)
    assert errors == {}
    views = drawn(view, more)
    drawn_names = [node["name"] for node in views["graph"]["nodes"]]
    assert "both" in drawn_names
    assert not {*names} & {*drawn_names}
    plain = drawn(replace(view, groups=()), results)["graph"]
    assert len(plain["nodes"]) == len(drawn_names) + 1
    predicted = float(graph.predicted_effect(names)[0])
    rows = dict(views[SCALED]["rows"])
    assert rows["change of the logit, predicted by the graph"] == number(predicted, 3, sign=True)
    assert more[SCALED].scaled == tuple(names)
    assert any(names[0] in row[0] for row in views["around"]["rows"])


@pytest.mark.parametrize("by", ["tokens", "sources"])
def test_units_that_are_alike_are_grouped_at_once(first, by):
    """Their names fit into the address; so do as many groups as it has room for."""
    view, results = first
    graph = results["graph"]
    grouped_view = grouped(view, graph, by)
    assert from_address(grouped_view.to_address()) == (grouped_view, ())
    groups = [*groups_of(grouped_view).values()]
    assert groups
    assert groups == [*graph.groups(by).values()][: len(groups)]
    names = {node["name"] for node in drawn(grouped_view, results)["graph"]["nodes"]}
    assert {*groups_of(grouped_view)} & names
    members = {unit for units in groups for unit in units}
    many = {f"{n} x": [*members][:20] for n in range(100)}
    graph_of_many = SimpleNamespace(groups=lambda _by: many)
    fitting = grouped(view, graph_of_many, by)
    assert 0 < len(fitting.groups) < 100
    assert from_address(fitting.to_address()) == (fitting, ())


def test_a_chosen_unit_names_the_tokens_that_it_promotes(first):
    view, results = first
    node = largest_feature(results["graph"])
    around = drawn(replace(view, node=node.name), results)["around"]
    assert node.promoted_tokens
    assert node.promoted_tokens in around["note"]


def test_the_code_of_a_question_attaches_the_dictionaries(first):
    view, _ = first
    (ask,) = (ask for ask in GRAPH_PAGE.asks(view, loaded(NAME)) if ask.name == "graph")
    code = ask.question.code()
    assert "interp.with_dictionaries(model, dictionaries)" in code
    scope: dict[str, object] = {}
    exec(code, scope)
    assert scope["result"].headline() == first[1]["graph"].headline()
    plain = replace(view, units="neurons")
    (ask,) = (ask for ask in GRAPH_PAGE.asks(plain, loaded(NAME)) if ask.name == "graph")
    assert "dictionaries" not in ask.question.code()


def test_the_folder_of_a_cross_layer_transcoder_gives_the_units(first, tmp_path, monkeypatch):
    """One of transcoders that write their own layer alone gives their graph, and their units."""
    view, results = first
    parts = [interp.dictionaries.load(name) for name in offered.dictionaries_of(NAME)]
    folder = tmp_path / "transcoder"
    across = interp.dictionaries.CrossLayerTranscoder.of(parts)
    interp.dictionaries.save_cross_layer(across, folder)
    monkeypatch.setattr(offered, "_dictionaries", [str(folder)])
    node = largest_feature(results["graph"])
    view = replace(view, node=node.name, asked=(SCALED, UNIT_TEXTS, DICTIONARIES))
    other, errors = answers(GRAPH_PAGE, view)
    assert errors == {}
    assert other["graph"].edges == results["graph"].edges
    np.testing.assert_allclose(other["graph"].effect, results["graph"].effect, atol=1e-5)
    assert other[SCALED].scaled == (node.name,)
    assert float(other[SCALED].effect.abs().max()) > 1e-3
    assert other[DICTIONARIES].places[-1] == "all layers"
    assert {SCALED, "graph", f"{UNIT_TEXTS}_0"} <= {*drawn(view, other)}
    _, errors = answers(GRAPH_PAGE, opened(GRAPH_PAGE, "python-2l", units="features"))
    assert "with one stack of 4 layers; this model has 2" in errors["graph"]


def test_a_model_without_a_sum_as_its_stream_has_no_graph():
    view = opened(GRAPH_PAGE, NAME)
    (only,) = GRAPH_PAGE.asks(view, build("opt-post"))
    assert "is no sum" in only.question


def test_dictionaries_of_the_command_line_take_the_place_of_bundled_ones(monkeypatch):
    monkeypatch.setattr(offered, "_dictionaries", [])
    assert len(offered.dictionaries_of(NAME)) == 4
    assert not offered.dictionaries_of("python-2l")
    assert not offered.dictionaries_of(f"{NAME}@500")
    offered.offer_dictionaries(["folder", "folder"])
    assert offered.dictionaries_of("python-2l") == ("folder",)
