"""Attribution graphs of heads and whole MLPs: exact sums, removals, what is refused."""

from functools import cache

import pytest
import torch
from architectures import assert_close, build, covering, tokens_of
from test_attribution_graph import LINEAR

import interp
from analyses import AttributionGraph, attribution_graph, scale_units
from analyses.attribution_graph import NeuronpediaGraph, filling
from analyses.attribution_graph.kinds import Kinds
from analyses.attribution_graph.rows import Readers, Rows
from analyses.methods.frozen import FrozenModel
from interp import Point, edits, run
from interp.errors import InvalidInput

BOUND = 1e-9
TEXT = "def f(self, name):\n    self.name ="
EVERYTHING = {"max_nodes": 10**6, "node_share": 1.0, "edge_share": 1.0}
UNITS = ["heads", "mlps", ("heads", "mlps"), ("heads", "neurons")]
MOVING = ["gpt2", "llama", "neox", "olmo2"]
"""Models with norms, gates and patterns: one with grouped heads, one parallel, one post-norm."""


@torch.no_grad()
def rows_of(name: str, units: object) -> tuple[Rows, Readers, Readers]:
    """The rows of one prompt, what all units read, and what two logits read."""
    model = build(name)
    (batch,) = model.batches(tokens_of(name)[0][:1])
    kinds = Kinds.of(model, units)
    cache = run(model, batch, record=kinds.places(model)).cache
    frozen = FrozenModel(model, cache, batch.is_real[0].nonzero()[:, 0])
    pos = torch.full((2,), len(frozen.embeddings) - 1)
    direction = model.unembed.W_U[:, :2].mT.to(frozen.embeddings)
    direction, bias = frozen.logits_direction(direction, int(pos[0]))
    logits = Readers.of_stream(torch.full((2,), len(frozen.parts)), pos, direction, bias)
    rows = kinds.rows(model, frozen, logits.mean(torch.tensor([0.7, 0.3])))
    return rows, rows.readers(torch.arange(rows.columns.first_unit, rows.columns.n)), logits


@pytest.mark.parametrize("units", UNITS, ids=str)
@pytest.mark.parametrize("name", covering(LINEAR))
@torch.no_grad()
def test_rows_sum_to_what_heads_mlps_and_logits_read(name, units):
    """Σ sources + biases = D·r of a head or an MLP, and a logit without biases of its own."""
    rows, readers, logits = rows_of(name, units)
    of_logits, of_units = rows.of(logits), rows.of(readers)
    stream = rows.frozen.vectors.sum(0)[logits.pos]
    assert_close(of_logits.sum(1), (stream * logits.direction).sum(1) + logits.bias, BOUND)
    if not rows.units:
        return
    reading = torch.cat([each.reading for each in rows.units.values()])
    assert_close(of_units.sum(1), reading, BOUND)
    assert (of_units[:, rows.columns.n_pos :].sum(1) - reading).abs().max() > 1e-6


@cache
def graph_of(name: str, units: object) -> AttributionGraph:
    """The whole graph of one logit, with every entry of its rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filling, "STORED", 0.0)
        tokens = tokens_of(name)[0][:1]
        return attribution_graph(build(name), tokens, units=units, targets=3, check=0, **EVERYTHING)


def fixed_parts(cache: interp.Cache) -> list[edits.Edit]:
    """Edits that keep patterns, divisors of norms and the ratios post / pre of a run."""
    pre: dict[int, torch.Tensor] = {}

    def read(x, hook):
        pre[hook.place.layer] = x.clone()

    def keep_ratio(_x, hook):
        layer = hook.place.layer
        return pre[layer] * cache[hook.place] / cache["pre", layer]

    functions = {Point.PRE: read, Point.POST: keep_ratio}
    patched = (Point.PATTERN, Point.SCALE, Point.FINAL_SCALE)
    return [
        edits.apply(place, functions[place.point])
        if place.point in functions
        else edits.patch(cache, place)
        for place in cache
        if place.point in functions or place.point in patched
    ]


def answer(logits: torch.Tensor) -> float:
    return float(logits[0, -1, 3] - logits[0, -1].mean())


@pytest.mark.parametrize("units", UNITS, ids=str)
@pytest.mark.parametrize("name", MOVING)
@torch.no_grad()
def test_without_a_unit_the_frozen_answer_loses_what_is_predicted(name, units):
    """Patterns, divisors of norms and ratios post / pre kept; where they are free, it does not."""
    model, tokens = build(name), tokens_of(name)[0][:1]
    plain = run(model, tokens, record=Kinds.of(model, "mlps").places(model))
    fixed, off = fixed_parts(plain.cache), []
    nodes = [node for node in graph_of(name, units).nodes if node.kind in ("head", "mlp")]
    assert len(nodes) >= 3
    for node in nodes:
        assert node.effect == pytest.approx(node.value, abs=BOUND)
        zero = (
            edits.zero("post", layer=node.layer, pos=node.pos)
            if node.head is None
            else edits.zero("z", layer=node.layer, head=node.head, pos=node.pos)
        )
        frozen, free = (
            answer(plain.logits) - answer(run(model, tokens, edits=made).logits)
            for made in ([*fixed, zero], [zero])
        )
        assert frozen == pytest.approx(node.effect, abs=BOUND)
        off.append(abs(free - node.effect))
    assert max(off) > 1e-3


def test_graphs_of_heads_have_all_that_graphs_have():
    """Frames, summary, figure, groups, removals, scaling and the file of viewers."""
    model = interp.load("python-4l").double()
    graph = attribution_graph(model, TEXT, units=["heads", "mlps"], targets=" name", check=4)
    frame = graph.to_node_frame()
    heads, mlps = (frame[frame["kind"] == kind] for kind in ("head", "mlp"))
    first = heads.iloc[0]
    assert first["name"] == f"L{first['layer']}H{first['head']}@{first['pos']}"
    assert mlps.iloc[0]["name"] == f"L{mlps.iloc[0]['layer']}MLP@{mlps.iloc[0]['pos']}"
    assert frame["neuron"].isna().all()
    assert graph.carriers == ("bypass",)
    assert {*graph.to_frame()["carrier"]} == {"bypass"}
    assert graph.predicted.n == 4
    assert first["name"] in graph.summary()
    assert "the part along the answer" in graph.summary()
    assert f"L{first['layer']} heads" in graph.drawing().rows
    assert graph.groups("sources") is not None
    file = NeuronpediaGraph.from_json(graph.to_neuronpedia("name"))
    types = {node.node_id.split("_")[0]: node.feature_type for node in file.nodes}
    assert types["head"] == "lorsa"
    assert types["mlp"] == "cross layer transcoder"
    checked = frame[frame["exact"].notna()]
    for _, row in checked.iterrows():
        scaled = scale_units(model, TEXT, [row["name"]], targets=" name")
        assert float(scaled.effect[0]) == pytest.approx(-row["exact"], abs=BOUND)
        assert float(scaled.effect_frozen[0]) == pytest.approx(-row["exact_frozen"], abs=BOUND)


def test_a_graph_without_active_units_names_the_units_of_a_model_without_mlps():
    """The default of an attention-only model has no unit; with heads there are some."""
    model = interp.load("python-2l")
    assert 'units="heads"' in attribution_graph(model, TEXT, check=0).summary()
    assert 'units="heads"' not in attribution_graph(model, TEXT, units="heads", check=0).summary()


def test_a_graph_of_heads_of_an_untrained_model_is_marked():
    graph = attribution_graph(interp.load("python-2l@0"), TEXT, units="heads", check=4)
    assert graph.headline().startswith("NOT RELIABLE")


@pytest.mark.parametrize(
    "units",
    [[], ["heads", "heads"], ["neurons", "mlps"], ["heads", "neurons", "mlps"], [["heads"]]],
)
def test_units_that_exclude_one_another_are_refused(units):
    with pytest.raises(InvalidInput, match=r'"mlps" or a cross-layer.*\("heads", "neurons"\)'):
        Kinds.of(interp.load("python-2l"), units)
