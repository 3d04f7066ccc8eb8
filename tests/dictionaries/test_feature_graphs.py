"""Attribution graphs of features: the laws of graphs, with transcoders in place of neurons.

Rows sum to what features read, error and biases included; heads and the bypass sum to each edge.
"""

from dataclasses import replace
from functools import cache
from importlib import import_module

import pytest
import torch
from architectures import assert_close, build, tokens_of

import interp
from analyses import attribution_graph
from analyses.attribution_graph import filling
from analyses.attribution_graph.units import features_of
from interp import Place, Point, edits, run
from interp.dictionaries import Dictionary, DictionaryTransformer, Gated, ReLU, SkipDictionary, TopK
from interp.errors import InvalidInput

N_FEATURES = 7
LAWS = ["test_rows_sum_to_what_neurons_and_logits_read", "test_heads_and_bypass_sum_to_each_edge"]
BOUND = 1e-9


SKIP, AFTER_NORM = "skip", "after norm"
VARIANTS = [
    *((name, ()) for name in ("gpt2", "llama", "neox", "gemma2", "set-encoder")),
    *((name, (SKIP,)) for name in ("gpt2", "neox", "gemma2", "set-encoder")),
    *(("gemma2", options) for options in ((AFTER_NORM,), (SKIP, AFTER_NORM))),
]
"""Models, and what their transcoders have."""


def transcoder(width: int, reads: str, writes: str, layer: int, *, skip: bool) -> Dictionary:
    """A transcoder with random weights: ReLU, gated or TopK, in turn."""
    generator = torch.Generator().manual_seed(layer)
    draw = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)  # noqa: E731
    gated = Gated(draw(N_FEATURES), draw(N_FEATURES) / 9, draw(N_FEATURES).abs())
    made = Dictionary(
        w_enc=draw(width, N_FEATURES),
        b_enc=draw(N_FEATURES),
        b_in=draw(width),
        w_dec=draw(N_FEATURES, width),
        b_dec=draw(width),
        activation=(ReLU(), gated, TopK(3))[layer % 3],
        reads=reads,
        writes=writes,
    )
    return SkipDictionary(**vars(made), w_skip=draw(width, width) / 3) if skip else made


@cache
def transcoded(name: str, options: tuple[str, ...] = ()) -> DictionaryTransformer:
    """A model with a transcoder of each MLP."""
    model = build(name)
    made: list[Dictionary] = []
    for layer, step in model.stacks[0].branches():
        if step.part == "mlp":
            output = Place(step.points.writes if AFTER_NORM in options else step.f.out)
            source = step.source()
            reads, writes = (
                model.names.hooks[replace(place, layer=layer)] for place in (source, output)
            )
            made.append(transcoder(model.d_model, reads, writes, layer, skip=SKIP in options))
    return interp.with_dictionaries(model, made)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
@pytest.mark.parametrize("law", LAWS)
def test_the_laws_of_graphs_hold_for_features(law, name, options, monkeypatch):
    graphs = import_module("tests.analyses.test_attribution_graph")
    view = transcoded(name, options)
    monkeypatch.setattr(graphs, "build", lambda _name: view)
    monkeypatch.setattr(graphs, "neurons_of", lambda frozen: features_of(view, frozen))
    getattr(graphs, law)(name)


def test_a_graph_of_features_has_errors_and_its_removals_are_of_features():
    view, tokens = transcoded("gpt2"), tokens_of("gpt2")[0][:1]
    graph = attribution_graph(view, tokens, units="features", check=4, node_share=1.0)
    kinds = {node.kind for node in graph.nodes}
    assert {"feature", "error", "embedding", "logit"} <= kinds
    assert "neuron" not in kinds
    weights = graph.probability.to(torch.float64) / graph.probability.sum()
    measured = [node for node in graph.nodes if node.exact == node.exact]
    assert measured
    ids = [int(node.name.split()[1].split("@")[0]) for node in graph.nodes if node.kind == "logit"]
    for node in measured:
        zero = edits.zero(("features", node.layer), unit=node.neuron, pos=node.pos)
        logits = torch.stack([run(view, tokens, edits=e).logits[0, -1] for e in ([], [zero])])
        answer = (logits[:, ids] - logits.mean(-1, keepdim=True)) @ weights
        assert float(answer[0] - answer[1]) == pytest.approx(node.exact, abs=BOUND)


@pytest.mark.parametrize(("name", "options"), [("gpt2", ()), ("gemma2", (SKIP, AFTER_NORM))])
def test_paths_from_heads_through_features_sum_to_what_they_contribute(name, options, monkeypatch):
    """With errors, and with skips and norms after the output; features are among the readers."""
    monkeypatch.setattr(filling, "STORED", 0.0)
    settings = {"max_nodes": 10**6, "node_share": 1.0, "edge_share": 1.0, "check": 0, "targets": 3}
    view, tokens = transcoded(name, options), tokens_of(name)[0][:1]
    graph = attribution_graph(view, tokens, units=("heads", "features"), **settings)
    heads = {node.name: node for node in graph.nodes if node.kind == "head"}
    assert len(heads) > 5
    for node in heads.values():
        assert node.effect == pytest.approx(node.value, abs=BOUND)
    assert any(writer in heads and "F" in reader for writer, reader in graph.edges)


def test_features_read_what_their_activations_are():
    """activation = reading = x·reader + constant, of every kind of dictionary."""
    graphs = import_module("tests.analyses.test_attribution_graph")
    view = transcoded("gpt2")
    (batch,) = view.batches(tokens_of("gpt2")[0][:1])
    done = run(view, batch, record="all").cache
    frozen = graphs.FrozenModel(view, done, batch.is_real[0].nonzero()[:, 0])
    for units in features_of(view, frozen).values():
        which = torch.arange(len(units.pos))
        directions, constants = units.readers(which)
        inputs = done[Place(Point.NORMALIZED, units.layer, "ln2")][0, units.pos]
        assert_close((inputs * directions).sum(-1) + constants, units.reading)
        assert float(units.reading.min()) > 0


def test_transcoders_that_a_graph_can_not_take_are_refused():
    model, view, tokens = build("gpt2"), transcoded("gpt2"), tokens_of("gpt2")[0][:1]
    first = next(iter(view.dictionaries().values()))
    wrong = [
        (model, "takes a model with transcoders"),
        (
            interp.with_dictionaries(model, replace(first, reads="blocks.0.hook_mlp_in")),
            "the input of the MLP",
        ),
    ]
    for of, message in wrong:
        with pytest.raises(InvalidInput, match=message):
            attribution_graph(of, tokens, units="features")
