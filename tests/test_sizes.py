"""The sizes of a model by their usual names, and what hasattr gives for what it lacks."""

import copy
import pickle

import pytest
import torch
from architectures import ARCHITECTURES, HEADLESS, PAIRS, build
from tables import each

from interp import AttentionConfig, Config, InterpError, LayerConfig, StackConfig, Transformer
from interp.errors import NoSuchAttribute
from interp.model.description import STACKED

SIZES = ("n_layers", "n_heads", "n_kv_heads", "d_model", "d_head", "d_vocab", "n_ctx")


def differing(config, name):
    """Whether the stacks of a pair, or layers, have different sizes."""
    stacks = config.stacks
    of = {
        "n_layers": [s.n_layers for s in stacks.values()],
        "n_heads": [s.attention.n_heads for s in stacks.values()],
        "d_head": [s.attention.d_head for s in stacks.values()],
        "n_kv_heads": [
            s.of_layer(n).attention.kv_heads for s in stacks.values() for n in range(s.n_layers)
        ],
        "d_vocab": [config.vocabulary_of(stack) for stack in stacks],
    }
    return len(set(of.get(name, [0]))) > 1


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_sizes_are_those_of_the_weights(name):
    model = build(name)
    attn = model.stacks[-1].block(0).attn
    d_vocab = len(model.W_E)
    expected = {
        "n_layers": len(model.stacks[-1].blocks),
        "n_heads": attn.W_Q.shape[0],
        "n_kv_heads": attn.W_K.shape[0],
        "d_model": attn.W_Q.shape[1],
        "d_head": attn.W_Q.shape[2],
        "d_vocab": d_vocab,
        "n_ctx": model.config.n_ctx,
    }
    assert set(expected) == set(SIZES)
    for size in SIZES:
        if differing(model.config, size):
            assert not hasattr(model, size)
            with pytest.raises(InterpError, match=rf"differ in {size}: model.encoder has \d+ and"):
                getattr(model, size)
        else:
            assert getattr(model, size) == expected[size]


def test_some_pair_differs_in_each_size_that_can_differ():
    """So that the refusal above is tested for each."""
    sizes = {size for name in PAIRS for size in SIZES if differing(ARCHITECTURES[name], size)}
    assert sizes == {"n_layers", "n_heads", "n_kv_heads", "d_head", "d_vocab"}


def test_layers_that_differ_are_listed():
    exception = LayerConfig((1,), attention=AttentionConfig(4, 2, 2))
    stack = StackConfig(3, AttentionConfig(4, 2), exceptions=(exception,))
    model = Transformer(Config(8, 7, 5, decoder=stack))
    assert (model.n_heads, model.n_layers) == (4, 3)
    with pytest.raises(NoSuchAttribute, match=r"layers .* differ in n_kv_heads .*\[4, 2, 4\]"):
        model.n_kv_heads  # noqa: B018 - reading it raises


@pytest.mark.parametrize("name", [*ARCHITECTURES, "headless"])
def test_hasattr_answers_for_every_name(name):
    """What a model lacks is an attribute that it lacks, with the reason."""
    model = Transformer(HEADLESS) if name == "headless" else build(name)
    names = {name for name in dir(type(model)) if not name.startswith("__")}
    for attribute in sorted(names | set(STACKED)):
        if hasattr(model, attribute):
            getattr(model, attribute)
            continue
        with pytest.raises(InterpError) as caught:
            getattr(model, attribute)
        assert isinstance(caught.value, AttributeError)
        assert getattr(model, attribute, None) is None


@each(
    ("name", "attribute", "message"),
    [
        ("seed", "b_in", "has no b_in"),
        ("seed", "W_in", "has no W_in"),
        ("gpt2", "W_gate", "has no W_gate"),
        ("llama", "b_in", "has no b_in"),
        ("llama", "W_pos", "adds no position embedding"),
        ("marian", "W_Q", "model.encoder.blocks or model.decoder.blocks"),
        ("marian", "blocks", "model.encoder.blocks or model.decoder.blocks"),
        ("qwen-moe", "W_in", "layers differ in W_in"),
    ],
)
def test_what_a_model_lacks_has_a_reason(name, attribute, message):
    model = build(name)
    assert not hasattr(model, attribute)
    with pytest.raises(NoSuchAttribute, match=message):
        getattr(model, attribute)


def test_what_it_has_is_read():
    """The converse."""
    assert hasattr(build("gpt2"), "b_in")
    assert build("gpt2").b_in.shape == (2, 10)
    assert hasattr(build("marian"), "W_U")


def test_a_misspelt_attribute_is_no_error_of_this_package():
    with pytest.raises(AttributeError, match="n_layer") as caught:
        build("gpt2").n_layer  # noqa: B018
    assert not isinstance(caught.value, InterpError)


def test_a_model_is_still_copied_and_pickled():
    model = build("gpt2")
    for again in (copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(again.W_E, model.W_E)
        assert again.n_layers == 2
