"""Scaled units of a graph: they are edits, graphs predict them where nothing moves, bad names."""

import pandas as pd
import pytest
import torch
from architectures import assert_close, build, tokens_of
from declared import Call, Declared, EachPrompt, Made, Symmetric, Without, odd
from declared.prompts import row_of
from permuted import NORMALIZING_THE_STREAM

import interp
from analyses import attribution_graph, scale_units
from interp import edits, run
from interp.errors import InvalidInput, InvalidTokens

BOUND = 1e-9
HISTOGRAM = interp.read_prompts("rasp-histogram")[0].text
EVERYTHING = {"max_nodes": 10**6, "node_share": 1.0, "edge_share": 1.0}
TEXT = "def f(self, name):\n    self.name ="


def with_transcoders() -> interp.DictionaryTransformer:
    names = [f"python-4l/mlp-{layer}" for layer in range(4)]
    transcoders = [interp.dictionaries.load(name) for name in names]
    return interp.with_dictionaries(interp.load("python-4l"), transcoders)


@pytest.mark.parametrize("factor", [0.0, -1.5, 3.0])
def test_the_change_is_that_of_a_run_with_edits(factor):
    """Several units together; with the patterns of the plain run, it is another."""
    model, tokens = build("gpt2"), tokens_of("gpt2")[0][:1]
    result = scale_units(model, tokens, ["L0N3@1", "L1N0@2"], factor=factor, targets=[3, 5])
    scaled = [
        edits.scale("post", factor, layer=0, unit=3, pos=1),
        edits.scale("post", factor, layer=1, unit=0, pos=2),
    ]
    plain, edited = run(model, tokens, record="pattern"), run(model, tokens, edits=scaled)
    plain_patterns = [edits.patch(plain.cache, "pattern", layer=layer) for layer in range(2)]
    frozen = run(model, tokens, edits=[*scaled, *plain_patterns])
    before, after, fixed = (
        x.logits[0, -1].double() - x.logits[0, -1].double().mean() for x in (plain, edited, frozen)
    )
    assert_close(result.value, before[[3, 5]], BOUND)
    assert_close(result.effect, (after - before)[[3, 5]], BOUND)
    assert_close(result.effect_frozen, (fixed - before)[[3, 5]], BOUND)
    assert_close(result.scaled_probability, after.softmax(-1)[[3, 5]], BOUND)
    assert (result.effect - result.effect_frozen).abs().max() > 1e-6


def test_a_factor_of_1_changes_nothing():
    result = scale_units(build("gpt2"), tokens_of("gpt2")[0][:1], ["L0N3@1"], factor=1.0)
    assert not result.effect.any()
    assert torch.equal(result.probability, result.scaled_probability)


@pytest.mark.parametrize("factor", [0.0, 2.5])
def test_a_graph_predicts_all_units_together_where_nothing_can_move(factor):
    """The neurons of a model whose logits alone read them; one by one they differ from all."""
    model = interp.load("rasp-histogram").double()
    graph = attribution_graph(model, HISTOGRAM, check=0, **EVERYTHING)
    names = [node.name for node in graph.nodes if node.kind == "neuron"]
    assert len(names) > 1
    for units in (names, names[:1]):
        predicted = graph.predicted_effect(units, factor)
        measured = scale_units(
            model, HISTOGRAM, units, factor=factor, targets=graph.target_ids.tolist()
        )
        assert_close(predicted, measured.effect, BOUND)
        assert predicted.abs().max() > 1e-3


def test_units_on_one_path_are_not_counted_twice():
    """Two units of which one reads the other: their joint effect is not the sum of both."""
    model, tokens = build("gpt2"), tokens_of("gpt2")[0][:1]
    graph = attribution_graph(model, tokens, targets=[3], check=0, **EVERYTHING)
    pairs = [
        edge for edge in graph.edges if edge[0].startswith("L0N") and edge[1].startswith("L1N")
    ]
    effects = {node.name: node.effect for node in graph.nodes}
    differences = []
    for first, second in pairs[:20]:
        joint = float(graph.predicted_effect([first, second])[0])
        assert float(graph.predicted_effect([first])[0]) == pytest.approx(-effects[first], abs=1e-9)
        differences.append(abs(joint + effects[first] + effects[second]))
    assert max(differences) > 1e-9
    everything = [node.name for node in graph.nodes if node.kind == "neuron"]
    through = float(graph.predicted_effect(everything)[0])
    into_logit = sum(
        float(effect)
        for (source, target), effect in zip(graph.edges, graph.effect, strict=True)
        if target.startswith("logit") and source in everything
    )
    assert through == pytest.approx(-into_logit, abs=1e-9)


def test_features_are_units_of_a_view_with_dictionaries():
    view = with_transcoders()
    graph = attribution_graph(view, TEXT, units="features", check=0, max_nodes=20)
    name = next(node.name for node in graph.nodes if node.kind == "feature")
    result = scale_units(view, TEXT, [name])
    layer, index, pos = map(int, name.removeprefix("L").replace("F", "@").split("@"))
    edited = run(view, TEXT, edits=[edits.zero("features", layer=layer, unit=index, pos=pos)])
    expected = edited.logits[0, -1].double().softmax(-1)[result.target_ids]
    assert_close(result.scaled_probability, expected, 1e-6)
    with pytest.raises(InvalidInput, match="layers of this model with features of an MLP: none"):
        scale_units(interp.load("python-4l"), TEXT, [name])


def test_without_targets_the_tokens_that_change_most_are_among_them():
    model = interp.load("python-4l")
    result = scale_units(model, TEXT, ["L0N7@2", "L3N20@10"], factor=-20.0)
    plain, edited = (
        run(model, TEXT, edits=scaled).logits[0, -1].double()
        for scaled in (
            [],
            [
                edits.scale("post", -20.0, layer=0, unit=7, pos=2),
                edits.scale("post", -20.0, layer=3, unit=20, pos=10),
            ],
        )
    )
    change = edited - plain - (edited - plain).mean()
    assert int(change.abs().argmax()) in result.target_ids.tolist()
    assert int(plain.argmax()) == result.target_ids[0]


def test_wrong_inputs_are_refused():
    model, tokens = build("gpt2"), tokens_of("gpt2")[0]
    prompt = tokens[:1]
    wrong = {
        "no name of a unit": ["L0H1"],
        "names a unit twice": ["L0N1@1", "L0N1@1"],
        "layers of this model with neurons": ["L9N1@1"],
        "has units 0 to": ["L0N9999@1"],
        "the prompt positions 0 to": ["L0N1@99"],
        "should be a list of names": [],
    }
    for message, units in wrong.items():
        with pytest.raises(InvalidInput, match=message):
            scale_units(model, prompt, units)
    with pytest.raises(InvalidInput, match="should be a list of names"):
        scale_units(model, prompt, "L0N1@1")
    with pytest.raises(InvalidInput, match="of one prompt; got"):
        scale_units(model, tokens, ["L0N1@1"])
    with pytest.raises(InvalidInput, match="takes models with one stack"):
        scale_units(build("t5"), tokens_of("t5"), ["L0N1@1"])
    with pytest.raises(InvalidTokens, match="targets"):
        scale_units(interp.load("python-4l"), TEXT, ["L0N1@1"], targets=" several tokens here")
    graph = attribution_graph(build("gpt2"), tokens_of("gpt2")[0][:1], check=0)
    with pytest.raises(InvalidInput, match="has no node 'L0N99999@0'"):
        graph.predicted_effect(["L0N99999@0"])
    with pytest.raises(InvalidInput, match="no unit, and can't be scaled"):
        graph.predicted_effect([graph.nodes[0].name])


# ---- declared for the tests of all analyses -------------------------------------------------


def of_prompt(model, ids, target):
    """All neurons of the first layer at a position, so that their order does not matter."""
    width = model.blocks[0].mlp.W_in.shape[1]
    units = [f"L0N{n}@1" for n in range(width)]
    return scale_units(model, ids[ids >= 0][None], units, factor=0.5, targets=target)


def numbers_of_prompts(model, prompts, n):
    results = [
        scale_units(model, row_of(prompts, i), ["L0N0@1", "L0N1@0"], targets=[1, 2])
        for i in range(n)
    ]
    names = ("value", "effect", "effect_frozen", "probability", "scaled_probability")
    return [{name: getattr(result, name) for name in names} for result in results]


def of_case(case):
    tables = [
        of_prompt(case.model, case.clean[n], case.target[n]).to_frame().assign(prompt=n)
        for n in range(len(case.clean))
    ]
    return {"logits": pd.concat(tables)}


DECLARED = Declared(
    analysis=scale_units,
    made=Made(lambda: scale_units(interp.load("rasp-histogram"), HISTOGRAM, ["L0N17@6"])),
    call=Call(
        (build("gpt2"), tokens_of("gpt2")[0][:1]),
        {"units": ["L0N1@1"]},
        {
            "units": (odd.TEXT, odd.BELOW, odd.NOTHING, [], ["L0H0"], [3]),
            "factor": (odd.TEXT, float("nan"), float("inf"), odd.LISTED, odd.NOTHING, True),
            "targets": odd.TOKENS,
            "pos": (odd.TEXT, odd.BROKEN, odd.LISTED),
            "transcoder": (odd.TEXT, odd.LISTED),
        },
    ),
    command=Without("it takes one prompt"),
    of_each_prompt=EachPrompt(numbers_of_prompts, {"texts": "with neurons: none"}),
    of_each_pair=Without("it takes models with one stack"),
    symmetric=Symmetric(
        {"": of_case}, not_compared=("token", "id"), refused=NORMALIZING_THE_STREAM
    ),
)
