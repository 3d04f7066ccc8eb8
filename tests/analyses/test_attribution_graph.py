"""Attribution graphs: exact sums, influence, known circuits, removals, and what is refused."""

from inspect import unwrap

import pandas as pd
import pytest
import torch
from allocations import allocated
from architectures import ARCHITECTURES, PAIRS, assert_close, build, covering, tokens_of
from declared import Call, Declared, EachPrompt, Made, Symmetric, Without, odd, small
from declared import prompts as kinds
from declared.prompts import row_of
from permuted import NORMALIZING_THE_STREAM, tables_of

import interp
from analyses import AttributionGraph, attribution_graph, estimate_attribution_graph, trace_paths
from analyses.attribution_graph import filling
from analyses.attribution_graph.carriers import Cells, parts_of_edges, sums_of_carriers
from analyses.attribution_graph.checks import Predicted
from analyses.attribution_graph.groups import groups_by_sources, groups_by_tokens
from analyses.attribution_graph.influence import Edges, influence
from analyses.attribution_graph.nodes import GraphNode
from analyses.attribution_graph.rows import Readers, Rows
from analyses.attribution_graph.units import neurons_of
from analyses.methods.frozen import FrozenModel, output_norm, places_of_run
from interp import AttentionConfig, Config, MLPConfig, StackConfig, Transformer, run
from interp.errors import InvalidInput, InvalidTokens, OutOfResources

BOUND = 1e-9
TEXT = "def f(self, name):\n    self.name ="
HISTOGRAM = interp.read_prompts("rasp-histogram")[0].text
EVERYTHING = {"max_nodes": 10**6, "node_share": 1.0, "edge_share": 1.0}


def is_linear(name: str) -> bool:
    if name in (*PAIRS, "olmo", "olmo2-clipped") or ARCHITECTURES[name].head is not None:
        return False
    try:
        interp.computation_graph(build(name))
    except InvalidInput:
        return False
    return True


LINEAR = [name for name in ARCHITECTURES if is_linear(name)]


def rows_of(name: str) -> tuple[Rows, Readers, torch.Tensor]:
    """The rows of one prompt, what three logits read, and all columns of units."""
    model = build(name)
    (batch,) = model.batches(tokens_of(name)[0][:1])
    cache = run(model, batch, record=places_of_run(model)).cache
    frozen = FrozenModel(model, cache, batch.is_real[0].nonzero()[:, 0])
    rows = Rows(frozen, neurons_of(frozen))
    pos = rows.columns.n_pos - 1
    reading = frozen.read_by_logits(model.unembed.W_U[:, :3].mT.to(frozen.vectors), pos)
    before = torch.full((3,), len(frozen.parts))
    at = torch.full((3,), pos)
    logits = Readers.of_stream(before, at, reading.direction[:, 0], reading.bias)
    return rows, logits, torch.arange(rows.columns.first_unit, rows.columns.n)


# ---- sums -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", covering(LINEAR))
@torch.no_grad()
def test_rows_sum_to_what_neurons_and_logits_read(name):
    """Σ sources + biases = pre of a neuron, and the part of a logit that is no bias of its own."""
    rows, logits, columns = rows_of(name)
    of_logits = rows.of(logits)
    frozen = rows.frozen
    stream = frozen.vectors.sum(0)[logits.pos]
    expected = (stream * logits.direction).sum(1) + logits.bias
    assert_close(of_logits.sum(1), expected, BOUND)
    readings = [units.reading for units in rows.units.values()]
    if readings:
        of_units = rows.of(rows.readers(columns))
        assert_close(of_units.sum(1), torch.cat(readings), BOUND)
        without = of_units[:, rows.columns.n_pos :].sum(1)
        assert (without - torch.cat(readings)).abs().max() > 1e-3
    without = of_logits.clone()
    without[:, 0] = 0
    assert (without.sum(1) - expected).abs().max() > 1e-6


@pytest.mark.parametrize("name", covering(LINEAR))
@torch.no_grad()
def test_heads_and_bypass_sum_to_each_edge(name):
    """Σ_heads part + bypass = edge, for logits and neurons; without the bypass it is not.

    Over all sources, the parts of a carrier sum to what it brings in all.
    """
    rows, logits, columns = rows_of(name)
    readers, n = logits, 3
    if len(columns):
        units = rows.readers(columns[:: max(1, len(columns) // 20)])
        readers = Readers.joined([logits, units])
        n = len(readers.pos)
    edges = rows.of(readers)
    reader, column = torch.ones_like(edges).nonzero().unbind(1)
    parts = parts_of_edges(rows, readers, Cells(reader, column))
    assert_close(parts.sum(1).view_as(edges), edges, BOUND)
    assert_close(
        parts.view(n, -1, len(rows.carriers)).sum(1), sums_of_carriers(rows, readers), BOUND
    )
    assert (parts[:, 1:].sum(1).view_as(edges) - edges).abs().max() > 1e-6
    some = torch.arange(0, len(reader), 3)
    assert_close(
        parts_of_edges(rows, readers, Cells(reader[some], column[some])), parts[some], BOUND
    )


@torch.no_grad()
def test_a_route_through_two_heads_belongs_to_the_last():
    """The value of the previous-token head reaches the logits through the induction head alone."""
    model = interp.load("python-2l").double()
    graph = attribution_graph(model, TEXT, targets=" name", check=0, **EVERYTHING)
    heads = [n for n, name in enumerate(graph.carriers) if name.startswith("L1")]
    frozen = trace_paths(model, TEXT, target=" name", scores=False, check=0)
    assert frozen.error <= BOUND
    (logit,) = (node for node in graph.nodes if node.kind == "logit")
    through = float(graph.terms[:, heads].sum())
    cache = run(model, TEXT, record=[("z", 1), "final_scale"]).cache
    z = cache["z", 1][0, -1]
    w = model.unembed.W_U[:, model.to_single_token(" name")] - model.unembed.W_U.mean(1)
    norm, scale = model.stacks[0].final_norm, cache["final_scale"][0, -1:]
    direction, _ = norm.pull_back(w[None], scale)
    written = torch.einsum("hd,hdm->m", z, model.blocks[1].attn.W_O) @ direction[0]
    assert through == pytest.approx(float(written), abs=BOUND)
    assert logit.value == pytest.approx(float(graph.effect.sum()), abs=BOUND)


@pytest.mark.parametrize("settings", [{}, {"max_nodes": 20}, EVERYTHING], ids=str)
def test_edges_of_a_pruned_graph_sum_to_what_each_node_reads(settings):
    """The rest included; and the logit is the model's."""
    model = build("gpt2")
    tokens = tokens_of("gpt2")[0][:1]
    graph = attribution_graph(model, tokens, targets=[3, 5], check=0, **settings)
    logits = run(model, tokens).logits[0, -1]
    assert_close(graph.value, logits[[3, 5]] - logits.mean(), BOUND)
    read, shares = ({node.name: 0.0 for node in graph.nodes} for _ in range(2))
    for (_, target), effect, share in zip(
        graph.edges, graph.effect.tolist(), graph.share.tolist(), strict=True
    ):
        read[target] += effect
        shares[target] += share
    readers = [node for node in graph.nodes if node.kind in ("neuron", "logit")]
    assert len(readers) > 2
    for node in readers:
        assert read[node.name] == pytest.approx(node.value, abs=BOUND)
        assert shares[node.name] == pytest.approx(1.0, abs=BOUND)
    assert_close(graph.terms.sum(1), graph.effect, BOUND)
    without_rest = sum(
        e for (s, _), e in zip(graph.edges, graph.effect, strict=True) if s != "rest"
    )
    assert abs(float(without_rest - graph.effect.sum())) > 1e-6


# ---- influence ------------------------------------------------------------------------------


def test_influence_is_that_of_the_inverse():
    """p·(Â + Â² + …) = p·((I − Â)⁻¹ − I); of a graph with one edge less it is another."""
    graph = attribution_graph(build("gpt2"), tokens_of("gpt2")[0][:1], check=0, max_nodes=30)
    number = {node.name: n for n, node in enumerate(graph.nodes)}
    A = torch.zeros(len(number), len(number), dtype=torch.float64)
    for (source, target), share in zip(graph.edges, graph.share, strict=True):
        A[number[target], number[source]] = share
    start = torch.tensor([float(node.kind == "logit") for node in graph.nodes]).double()
    start[start > 0] = graph.probability / graph.probability.sum()
    series = start @ torch.linalg.inv(torch.eye(len(A), dtype=torch.float64) - A)
    expected = torch.tensor([node.influence for node in graph.nodes], dtype=torch.float64)
    assert_close(series, expected, BOUND)
    A[A.max() == A] = 0
    broken = start @ torch.linalg.inv(torch.eye(len(A), dtype=torch.float64) - A)
    assert (broken - expected).abs().max() > 1e-3


def test_influence_of_a_small_graph_by_hand():
    edges = Edges(
        target=torch.tensor([3, 3, 2, 2]),
        source=torch.tensor([2, 0, 0, 1]),
        weight=torch.tensor([3.0, -1.0, 1.0, 1.0]).double(),
        share=torch.tensor([0.75, 0.25, 0.5, 0.5]).double(),
    )
    start = torch.tensor([0.0, 0.0, 0.0, 1.0]).double()
    assert influence(edges, start).tolist() == [0.625, 0.375, 0.75, 0.0]


def test_less_is_kept_where_shares_are_smaller_and_the_scores_fall():
    model = interp.load("python-4l")
    wide, narrow = (
        attribution_graph(model, TEXT, check=0, max_nodes=60, node_share=share)
        for share in (1.0, 0.5)
    )
    assert narrow.n_units[2] < wide.n_units[2] <= wide.n_units[1] == 60 < wide.n_units[0]
    assert narrow.replacement_score[0] == wide.replacement_score[0] > narrow.replacement_score[1]
    assert narrow.completeness_score[0] == wide.completeness_score[0] > narrow.completeness_score[1]
    rest = {
        graph: next(node.influence for node in graph.nodes if node.kind == "rest")
        for graph in (wide, narrow)
    }
    assert rest[narrow] > rest[wide]


# ---- removals and known circuits ------------------------------------------------------------


def test_removals_are_as_predicted_where_nothing_can_move():
    """The neurons of the last layer of a model without norms: nothing reads them but the logits."""
    model = interp.load("rasp-histogram").double()
    graph = attribution_graph(model, HISTOGRAM, check=10**4, **EVERYTHING)
    units = [node for node in graph.nodes if node.kind == "neuron"]
    assert len(units) >= 1
    for node in units:
        assert node.exact == pytest.approx(node.effect, abs=BOUND)
        assert node.exact_frozen == pytest.approx(node.effect, abs=BOUND)
    assert graph.predicted.near == 1.0
    assert graph.predicted.slope == pytest.approx(1.0, abs=BOUND)


def test_the_circuit_made_by_hand_is_one_edge_through_its_head():
    """By values alone: keys and queries, and so the previous-token head, are fixed."""
    graph = attribution_graph(interp.load("induction-by-hand"), "abcab", check=0)
    assert graph.edges == (("embed@3", "logit 3@5"),) or len(graph.edges) == 1
    ((source, _),) = graph.edges
    assert graph.tokens[int(source.partition("@")[2])] == "c"
    row = graph.to_frame().iloc[0]
    assert row["carrier"] == "L1H0"
    assert row["carried"] == pytest.approx(row["effect"], abs=1e-5)


def test_a_compiled_model_has_no_nodes_or_heads_outside_its_circuit():
    """rasp-histogram: L0H0 and the MLP; three more heads have random weights of no effect."""
    circuit = interp.card("rasp-histogram").circuit
    model = interp.load("rasp-histogram").double()
    graph = attribution_graph(model, HISTOGRAM, check=0, **EVERYTHING)
    sizes = dict(zip(graph.carriers, graph.terms.abs().sum(0).tolist(), strict=True))
    heads = {name for name, size in sizes.items() if size > 1e-9} - {"bypass"}
    assert heads == {"L0H0"} == set(map(str, circuit.heads))
    kinds_of_nodes = {node.kind for node in graph.nodes if node.influence > 1e-9}
    assert "neuron" in kinds_of_nodes <= {"neuron", "embedding", "bias", "logit"}
    into_logits = {source for source, target in graph.edges if target.startswith("logit")}
    assert all(name.startswith("L0N") or name == "bias" for name in into_logits - {"rest"})


def test_an_untrained_model_predicts_nothing_and_its_graph_is_marked():
    trained, untrained = (
        attribution_graph(interp.load(name), TEXT, check=0) for name in ("python-2l", "python-2l@0")
    )
    assert not trained.failures
    assert "of the probability" in untrained.failures[0]
    assert untrained.headline().startswith("NOT RELIABLE")


def test_a_graph_in_which_no_token_has_influence_names_biases_as_its_failure():
    """The MLP of rasp-histogram as one node: what it reads moves no part along the answer."""
    model = interp.load("rasp-histogram")
    whole = attribution_graph(model, HISTOGRAM, units="mlps", check=0)
    assert whole.replacement_score.isnan().all()
    assert whole.failures == ("all influence is from biases; where heads attend is fixed",)
    of_neurons = attribution_graph(model, HISTOGRAM, check=0, **EVERYTHING)
    assert of_neurons.failures == ()


def test_a_graph_whose_predictions_fail_is_marked():
    graph = attribution_graph(interp.load("python-4l"), TEXT, check=8, max_nodes=50)
    assert graph.predicted.n == graph.predicted_frozen.n == 8
    assert graph.predicted.fails
    assert "predicted removals" in graph.headline().partition(":")[0]
    effects = torch.tensor([1.0, -2.0, 3.0])
    assert not Predicted.of(effects, 1.5 * effects).fails
    assert Predicted.of(effects, 3 * effects).fails
    assert Predicted.of(effects, -effects).fails
    assert Predicted.of(effects, 1.5 * effects).slope == pytest.approx(1.5)


# ---- units: what they promote, and groups of them --------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "olmo2"])
def test_promoted_tokens_are_those_whose_logits_rise_most_through_the_final_norm(name):
    """With the divisors of the run, where the graph takes 1: they change no order."""
    model = build(name)
    tokens = tokens_of(name)[0][:1]
    graph = attribution_graph(model, tokens, check=0, max_nodes=20, node_share=1.0)
    cache = run(model, tokens, record=places_of_run(model)).cache
    (batch,) = model.batches(tokens)
    frozen = FrozenModel(model, cache, batch.is_real[0].nonzero()[:, 0])
    units = [node for node in graph.nodes if node.kind == "neuron"]
    assert len(units) > 5
    for unit in units:
        step = model.stacks[0].blocks[unit.layer]
        written = unit.activation * step.mlp.W_out[unit.neuron].to(frozen.vectors)
        branch = next(
            each
            for each in frozen.branches
            if each.layer == unit.layer and hasattr(each.step.f, "W_out")
        )
        directions = model.unembed.W_U.mT.to(written)
        scale = cache["final_scale"][0, unit.pos].to(written)
        directions, _ = model.stacks[0].final_norm.pull_back(directions, scale)
        normed = output_norm(branch.layer, branch.step)
        if normed is not None:
            norm, place = normed
            directions, _ = norm.pull_back(directions, frozen.at(place)[unit.pos])
        ids = (directions @ written).topk(5).indices.tolist()
        assert unit.promoted_tokens == " ".join(map(model.label, ids))


def made_up(name, promoted):
    return GraphNode(name, "neuron", promoted_tokens=promoted)


def test_units_that_promote_the_same_tokens_or_read_the_same_are_one_group():
    units = [
        made_up("a", "x y z u v"), made_up("b", "v u z q r"), made_up("c", "x y q r s"),
        made_up("d", "1 2 3 4 5"), made_up("e", "1 2 3 4 6"), made_up("f", "x y w a b"),
    ]  # fmt: skip
    assert groups_by_tokens(units) == {"x y": ["a", "b"], "1 2": ["d", "e"]}
    read = {
        "a": {"embed@0": 2.0, "embed@1": 1.0}, "b": {"embed@0": 4.0, "embed@1": 2.5},
        "c": {"embed@0": -2.0, "embed@1": -1.0}, "d": {"embed@1": 1.0}, "e": {"embed@1": 7.0},
    }  # fmt: skip
    assert groups_by_sources(units, read) == {"of embed@0": ["a", "b"], "of embed@1": ["d", "e"]}
    twice = [*units[:2], made_up("g", "x y 7 8 9"), made_up("h", "x y 7 8 9")]
    assert groups_by_tokens(twice) == {"x y": ["a", "b"], "x y #2": ["g", "h"]}
    assert groups_by_tokens([]) == groups_by_sources([], {}) == {}


def test_groups_of_a_graph_are_drawn_as_one_node_and_written_to_its_file():
    graph = attribution_graph(interp.load("python-4l"), TEXT, check=0)
    groups = graph.groups("tokens")
    grouped = [name for names in groups.values() for name in names]
    assert groups
    assert len({*grouped}) == len(grouped)
    with pytest.raises(InvalidInput, match=r'by=.layers. should be "tokens" or "sources"'):
        unwrap(AttributionGraph.groups)(graph, "layers")  # without the check of annotations
    params = graph.to_neuronpedia("name", groups=groups)["qParams"]
    names = {
        node["node_id"]: x.name
        for node, x in zip(graph.to_neuronpedia("name")["nodes"], graph.nodes, strict=True)
    }
    assert {name: [names[x] for x in ids] for name, *ids in params["supernodes"]} == groups
    assert [names[x] for x in params["pinnedIds"]] == grouped
    with pytest.raises(InvalidInput, match="no node 'L9N9@9'"):
        graph.to_neuronpedia("name", groups={"wrong": ["L9N9@9"]})
    by_source = graph.groups("sources")
    assert by_source
    assert by_source != groups


# ---- what a graph takes, known before it is computed -------------------------------------------

SHAPES = {
    "short": (2, 64, 64, {"max_nodes": 100}),
    "long": (1, 64, 192, {"max_nodes": 40}),
    "many nodes": (3, 64, 64, {"max_nodes": 300, "heads": False}),
    "without heads": (2, 64, 160, {"max_nodes": 40, "heads": False}),
    "with removals": (2, 64, 96, {"max_nodes": 40, "check": 4}),
    "of heads": (3, 64, 96, {"max_nodes": 100, "units": "heads"}),
    "of heads and neurons": (2, 64, 64, {"max_nodes": 100, "units": ("heads", "neurons")}),
}
"""Layers, width, tokens and settings."""


def shaped(n_layers, width):
    stack = StackConfig(n_layers, AttentionConfig(4, width // 4), MLPConfig(4 * width))
    torch.manual_seed(0)
    return Transformer(Config(width, 100, 256, decoder=stack)).requires_grad_(False)


@pytest.mark.parametrize("shape", covering(SHAPES, ["short", "of heads"]))
def test_the_estimate_bounds_what_a_graph_allocates_and_is_near_it(shape):
    n_layers, width, n_tokens, settings = SHAPES[shape]
    model, settings = shaped(n_layers, width), {"check": 0, **settings}
    tokens = torch.randint(100, (1, n_tokens), generator=torch.Generator().manual_seed(0))
    estimated = estimate_attribution_graph(model, tokens, **settings)
    peak, _ = allocated(lambda: attribution_graph(model, tokens, **settings))
    assert peak <= estimated.nbytes <= 3 * peak, estimated.nbytes / peak
    graph = attribution_graph(model, tokens, **settings)
    assert graph.n_units[0] == estimated.candidates
    assert graph.n_units[1] + len(graph.target) <= estimated.rows


def test_estimates_grow_with_nodes_and_prompts():
    model, short = shaped(2, 64), torch.zeros(1, 32, dtype=torch.long)
    few, many = (estimate_attribution_graph(model, short, max_nodes=n) for n in (10, 3000))
    longer = estimate_attribution_graph(model, short.repeat(1, 4), max_nodes=10)
    assert few.nbytes < many.nbytes
    assert few.multiply_adds < many.multiply_adds
    assert few.candidates < longer.candidates
    assert few.nbytes < longer.nbytes
    assert 0 < few.seconds < float("inf")


def test_a_graph_that_does_not_fit_is_refused_before_its_rows():
    model, tokens, done = shaped(2, 64), torch.zeros(1, 64, dtype=torch.long), []
    estimated = estimate_attribution_graph(model, tokens, max_nodes=20, check=0)
    settings = {"max_nodes": 20, "check": 0, "progress": lambda *numbers: done.append(numbers)}
    with pytest.raises(OutOfResources, match=r"candidates.*lower max_nodes="):
        attribution_graph(model, tokens, memory=estimated.nbytes - 1.0, **settings)
    assert not done
    attribution_graph(model, tokens, memory=float(estimated.nbytes), **settings)
    assert done


def test_edges_that_are_not_split_are_the_same_edges():
    model = interp.load("python-2l").double()
    split, whole = (
        attribution_graph(model, TEXT, check=0, max_nodes=20, heads=heads)
        for heads in (True, False)
    )
    assert split.edges == whole.edges
    assert_close(whole.terms[:, 0], split.terms.sum(1), BOUND)
    assert len(whole.carriers) == 1 < len(split.carriers)


def test_entries_that_become_no_edges_are_added_to_the_rest(monkeypatch):
    model, settings = build("gpt2"), {"check": 0, **EVERYTHING}
    tokens = tokens_of("gpt2")[0][:1]
    whole = attribution_graph(model, tokens, **settings)
    monkeypatch.setattr(filling, "MOST_EDGES", 2000)
    fewer = attribution_graph(model, tokens, **settings)
    assert len(fewer.edges) < len(whole.edges)
    read = {node.name: 0.0 for node in fewer.nodes}
    for (_, target), effect in zip(fewer.edges, fewer.effect.tolist(), strict=True):
        read[target] += effect
    for node in fewer.nodes:
        if node.kind in ("neuron", "logit"):
            assert read[node.name] == pytest.approx(node.value, abs=BOUND)


# ---- what is refused ------------------------------------------------------------------------


def test_wrong_inputs_are_refused():
    model = small.MODEL
    with pytest.raises(InvalidInput, match="of one prompt; got 3"):
        attribution_graph(model, small.CLEAN)
    with pytest.raises(InvalidInput, match="names a token twice"):
        attribution_graph(model, small.CLEAN[:1], targets=[1, 1])
    with pytest.raises(OutOfResources, match="lower max_nodes="):
        attribution_graph(model, small.CLEAN[:1], memory=1000.0)
    with pytest.raises(InvalidTokens, match="targets"):
        attribution_graph(interp.load("python-2l"), TEXT, targets=" several tokens here")


# ---- declared for the tests of all analyses -------------------------------------------------


def numbers_of_prompts(model, prompts, n):
    graphs = [attribution_graph(model, row_of(prompts, i), check=2) for i in range(n)]
    return [{"values": graph.value, "effects": graph.effect} for graph in graphs]


def of_case(case, units="neurons"):
    """Tables of the graphs of all prompts, without ids of tokens in names of logits."""
    tables: dict[str, list[pd.DataFrame]] = {}
    for prompt in range(len(case.clean)):
        ids = case.clean[prompt]
        target = case.target[prompt]
        tokens = ids[ids >= 0][None]
        graph = attribution_graph(case.model, tokens, targets=target, units=units, check=0)
        for name, table in tables_of(graph).items():
            without_ids = table.replace(r"logit \d+@", "logit@", regex=True)
            tables.setdefault(name, []).append(without_ids.assign(prompt=prompt))
    return {name: pd.concat(parts) for name, parts in tables.items()}


DECLARED = Declared(
    analysis=attribution_graph,
    made=Made(lambda: attribution_graph(interp.load("rasp-histogram"), HISTOGRAM, check=4)),
    call=Call(
        (small.MODEL, small.CLEAN[:1]),
        {},
        {
            "targets": odd.TOKENS,
            "pos": (odd.TEXT, odd.BROKEN, odd.LISTED),
            "units": odd.CHOICE,
            "max_nodes": (odd.TEXT, odd.BELOW, odd.BROKEN, odd.LISTED, odd.NOTHING, True),
            **dict.fromkeys(
                ("node_share", "edge_share"),
                (odd.TEXT, odd.BELOW, 0.0, odd.BROKEN, odd.LISTED, odd.NOTHING, True),
            ),
            "heads": (odd.TEXT, odd.NOTHING, 1),
            "check": (odd.TEXT, odd.BELOW, odd.BROKEN, odd.LISTED, odd.NOTHING, True),
            "seed": odd.SEED,
            "memory": odd.MEMORY,
        },
    ),
    command=Without("it takes one prompt"),
    of_each_prompt=EachPrompt(numbers_of_prompts, kinds.WITHOUT_EDGES, is_slow=True),
    of_each_pair=Without("it takes models with one stack"),
    symmetric=Symmetric(
        {"": of_case, "heads": lambda case: of_case(case, ("heads", "neurons"))},
        not_compared=("token", "neuron", "promoted_tokens"),
        refused=NORMALIZING_THE_STREAM,
    ),
)
