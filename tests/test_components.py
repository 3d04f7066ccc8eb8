"""The components of a model: every head, MLP and neuron once, by the names of its graph."""

import pytest
from architectures import ARCHITECTURES, build, covering

from analyses.methods.components.components import PARTS, components_of
from interp.errors import InvalidInput, UnknownPlace
from interp.graph import computation_graph
from interp.model.attention.attention import Attention

ADDING = [
    name
    for name, config in ARCHITECTURES.items()
    if all(stack.norm.placement not in ("post", "stream") for stack in config.stacks.values())
]


@pytest.mark.parametrize("name", covering(ADDING))
def test_their_names_are_those_of_the_graph(name):
    """What writes to the stream: heads or whole attention, and MLPs."""
    model = build(name)
    components = components_of(model)
    names = {each.name for each in (*components.heads, *components.sublayers)}
    written = {writer.name for writer in computation_graph(model).writers if writer.place}
    embeddings = {name for name in written if "embed" in name}
    assert written - embeddings <= names
    assert {each.name for each in components.mlps} <= written


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_every_head_is_one_of_them_at_a_place_of_the_model(name, part):
    model, components = build(name), components_of(build(name), part)
    attentions = [each for each in model.modules() if isinstance(each, Attention)]
    of_values = part == "v"
    assert len(components.heads) == sum(a.kv_heads if of_values else a.n_heads for a in attentions)
    every = (*components.heads, *components.sublayers)
    assert {each.place for each in every} <= set(model.layout)
    assert len({each.name for each in every}) == len(every)


@pytest.mark.parametrize("name", covering(ARCHITECTURES))
def test_layers_share_out_what_is_added_to_the_stream(name):
    components = components_of(build(name))
    layers = components.units("layers")
    assert [each for layer in layers.values() for each in layer] == list(components.sublayers)
    assert all(len({each.layer for each in layer}) == 1 for layer in layers.values())


def test_each_is_found_by_its_name():
    components = components_of(build("t5"))
    for kind in ("heads", "mlps", "neurons"):
        for name, (each,) in components.units(kind).items():
            assert components.named(name) == each
    for wrong in ("L0H1", "decoder.L0H9", "decoder.L0N10", "decoder.L2N0", "cross.L0MLP", ""):
        with pytest.raises(UnknownPlace, match="no component"):
            components.named(wrong)


def test_what_is_refused():
    with pytest.raises(InvalidInput, match="z, pattern, v"):
        components_of(build("gpt2"), "q")
    with pytest.raises(InvalidInput, match="pairs"):
        components_of(build("gpt2")).units("pair")
    with pytest.raises(InvalidInput, match="mixture of experts"):
        components_of(build("mixtral")).units("neurons")
