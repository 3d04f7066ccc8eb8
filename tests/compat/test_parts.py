"""Parts of the façade: called by themselves, and replaced; against TransformerLens 3.9."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from interp import InterpError
from interp.compat import HookPoint, TransformerLensKeyValueCache, patching
from tests.compat import encoder_shapes
from tests.compat.shapes import N_CTX, SHAPES, build, built, close, tokens
from tests.compat.test_hooked_encoder import pair as bert_pair
from tests.compat.test_hooked_encoder_decoder import pair as t5_pair

FLAGS = ("use_attn_result", "use_split_qkv_input", "use_hook_mlp_in")
FAST = ("gpt2", "llama")
NAMES = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in SHAPES]
EXPERTS = {"num_experts": 3, "experts_per_token": 2, "attn_only": False}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning"),
]


def stream(rows=2, columns=9, width=32):
    generator = torch.Generator().manual_seed(4)
    return torch.randn(rows, columns, width, dtype=torch.float64, generator=generator)


def recorded(model, call):
    """The value of a call, and all that hook points receive in it and in its backward pass."""
    cache, forward, backward = model.get_caching_hooks(incl_bwd=True)
    with model.hooks(forward, backward):
        value = call(model)
        if value.requires_grad:
            value.square().mean().backward()
    return value, cache


def same_calls(ours, theirs, call, tolerance=1e-9):
    """Both models give the same value, with the same activations and gradients on the way."""
    (value, cache), (expected, expected_cache) = (recorded(m, call) for m in (ours, theirs))
    close(value, expected, tolerance)
    assert cache.keys() == expected_cache.keys()
    for name, activation in expected_cache.items():
        if activation.numel():
            close(cache[name], activation, tolerance)
    for name, parameter in theirs.named_parameters():
        grad = dict(ours.named_parameters())[name].grad
        if parameter.grad is not None:
            close(grad, parameter.grad, tolerance)


# ---- called by themselves -----------------------------------------------------------------------


def calls_of(name):
    """A call of every part of a decoder."""
    x, heads = stream(), stream()[:, :, None].expand(-1, -1, 4, -1)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1], [1] * 9])
    calls = {
        "block": lambda m: m.blocks[1](x),
        "block, padding": lambda m: m.blocks[1](x, attention_mask=mask),
        "attn": lambda m: m.blocks[0].attn(query_input=x, key_input=2 * x, value_input=3 * x),
        "embed": lambda m: m.embed(tokens()),
        "unembed": lambda m: m.unembed(x),
    }
    if SHAPES[name].get("n_key_value_heads") is None:
        calls["attn, split"] = lambda m: m.blocks[0].attn(heads, 2 * heads, 3 * heads)
    if "positional_embedding_type" not in SHAPES[name]:
        calls["pos_embed"] = lambda m: m.pos_embed(tokens())
        calls["pos_embed, later"] = lambda m: m.pos_embed(tokens(), past_kv_pos_offset=3)
        calls["pos_embed, padding"] = lambda m: m.pos_embed(
            tokens(columns=6), past_kv_pos_offset=3, attention_mask=mask
        )
    if not SHAPES[name].get("attn_only"):
        calls |= {"mlp": lambda m: m.blocks[0].mlp(x), "ln1": lambda m: m.blocks[1].ln1(x)}
        calls |= {"ln_final": lambda m: m.ln_final(x)}
    return calls


@pytest.mark.parametrize("name", NAMES)
def test_parts_compute_by_themselves_as_theirs(name):
    ours, theirs = build(name)
    for title, call in calls_of(name).items():
        split = title.endswith("split")
        ours.cfg.use_split_qkv_input = theirs.cfg.use_split_qkv_input = split
        same_calls(ours, theirs, call)


def continued(model):
    """Logits of the last tokens, with keys and values of the first in a cache of either library."""
    caches = {"interp": TransformerLensKeyValueCache}
    library = type(model).__module__.partition(".")[0]
    if library not in caches:
        caches[library] = pytest.importorskip(library).TransformerLensKeyValueCache
    past = caches[library].init_cache(model.cfg, "cpu", 2)
    ones = torch.ones_like(tokens())
    model(tokens()[:, :5], past_kv_cache=past, attention_mask=ones[:, :5])
    return model(tokens()[:, 5:], past_kv_cache=past, attention_mask=ones[:, 5:])


@pytest.mark.parametrize("name", NAMES)
def test_the_whole_model_by_parts_is_theirs(name):
    """Every hook, gradient and weight; with padding, a KV cache and optional points."""
    ours, theirs = build(name)
    ours.blocks[1].register_forward_hook(lambda *of: None)
    assert not ours.runs_core
    same_calls(ours, theirs, lambda m: m(tokens()))
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1], [1] * 9])
    same_calls(ours, theirs, lambda m: m(tokens(), attention_mask=mask))
    close(*map(continued, (ours, theirs)))
    grouped = SHAPES[name].get("n_key_value_heads")
    for flag in (*FLAGS, *(() if grouped else ("use_attn_in",))):
        if flag != "use_hook_mlp_in" or not SHAPES[name].get("attn_only"):
            setattr(ours.cfg, flag, True)
            setattr(theirs.cfg, flag, True)
    same_calls(ours, theirs, lambda m: m(tokens()))


@pytest.mark.slow
def test_experts_by_themselves_are_theirs(monkeypatch):
    monkeypatch.setitem(SHAPES, "experts", SHAPES["llama"] | EXPERTS)
    ours, theirs = (model.to(torch.float64) for model in build("experts"))
    for call in (lambda m: m.blocks[0].mlp(stream()), lambda m: m(tokens())):
        same_calls(ours, theirs, call, 1e-6)  # a softmax in float32


def test_parts_of_encoders_compute_by_themselves_as_theirs():
    x = stream(columns=7, width=24)
    ours, theirs = bert_pair("bert")
    mask = torch.tensor([[0.0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, -torch.inf, -torch.inf, -torch.inf]])
    for call in (
        lambda m: m.blocks[1](x, mask[:, None, None].to(x)),
        lambda m: m.embed(encoder_shapes.ids(), torch.ones_like(encoder_shapes.ids())),
        lambda m: m.mlm_head(x),
        lambda m: m.pooler(x),
    ):
        same_calls(ours, theirs, call)
    ours, theirs = t5_pair("t5")
    bias = stream(1, 3, 49).view(1, 3, 7, 7)
    for call in (
        lambda m: m.encoder[0](x, position_bias=bias),
        lambda m: m.decoder[1](x, position_bias=bias, encoder_hidden_states=2 * x),
        lambda m: m.decoder[0].cross_attn(x, 2 * x, 3 * x),
        lambda m: m.encoder[0].attn.compute_relative_attention_bias(5, 7),
    ):
        same_calls(ours, theirs, call)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_shortformers_are_theirs(monkeypatch, name):
    kind = {"positional_embedding_type": "shortformer"}
    plain = {k: v for k, v in SHAPES[name].items() if k != "rotary_dim"}
    monkeypatch.setitem(SHAPES, "shortformer", plain | kind)
    ours, theirs = build("shortformer")
    same_calls(ours, theirs, lambda m: m(tokens()))
    ours.cfg.use_split_qkv_input = theirs.cfg.use_split_qkv_input = name == "gpt2"
    embedded = ours.input_to_embed(tokens())
    assert embedded[2] is not None
    again = ours(embedded[0], start_at_layer=0, shortformer_pos_embed=embedded[2])
    close(again, theirs(tokens()))


# ---- replaced -----------------------------------------------------------------------------------


class Autoencoder(nn.Module):
    """Stands in the place of a hook point, with hook points of its own."""

    def __init__(self, kind, width):
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        drawn = 0.4 * torch.randn(width, 12, dtype=torch.float64, generator=generator)
        self.W = nn.Parameter(drawn)
        self.hook_acts = kind()

    def forward(self, x):
        return self.hook_acts((x @ self.W).relu()) @ self.W.T


WIDTHS = {
    **dict.fromkeys(("hook_resid_pre", "hook_attn_out", "hook_mlp_out", "hook_resid_post"), 32),
    **{"attn.hook_z": 8, "attn.hook_q": 8, "mlp.hook_post": 48, "ln2.hook_normalized": 32},
}


@pytest.mark.parametrize("name", ["gpt2", pytest.param("llama", marks=pytest.mark.slow)])
@pytest.mark.parametrize("place", WIDTHS)
def test_a_module_in_the_place_of_a_hook_point_is_called(name, place):
    """As SAELens's ``add_sae``; undone by a new hook point, the model is the same as before."""
    ours, theirs = build(name)
    plain = ours(tokens())
    theirs_point = pytest.importorskip("transformer_lens.hook_points").HookPoint
    for model, kind in ((ours, HookPoint), (theirs, theirs_point)):
        *path, last = f"blocks.1.{place}".split(".")
        setattr(model.get_submodule(".".join(path)), last, Autoencoder(kind, WIDTHS[place]))
        model.setup()
    assert f"blocks.1.{place}.hook_acts" in ours.hook_dict
    assert f"blocks.1.{place}" not in ours.hook_dict
    assert not ours.runs_core
    same_calls(ours, theirs, lambda m: m(tokens()))
    for stop in (1, 2):
        close(ours(tokens(), stop_at_layer=stop), theirs(tokens(), stop_at_layer=stop))
    hooks = [(f"blocks.1.{place}.hook_acts", lambda x, hook: 0 * x)]
    close(*(m.run_with_hooks(tokens(), fwd_hooks=hooks) for m in (ours, theirs)))
    setattr(ours.get_submodule(".".join(path)), last, HookPoint())
    assert not ours.runs_core  # until setup() has named the new point
    ours.setup()
    assert ours.runs_core
    assert torch.equal(ours(tokens()), plain)
    zero = [(f"blocks.1.{place}", lambda x, hook: 0 * x)]
    assert not torch.allclose(ours.run_with_hooks(tokens(), fwd_hooks=zero), plain)


class Wrapped(nn.Module):
    """Stands in the place of a part, with a hook point before it."""

    def __init__(self, kind, part):
        super().__init__()
        self.old, self.hook_in = part, kind()

    def forward(self, *inputs, **keywords):
        return self.old(*(self.hook_in(x) for x in inputs), **keywords)


@pytest.mark.parametrize("path", ["blocks.0.mlp", "blocks.1", "unembed", "ln_final", "embed"])
def test_a_replaced_part_is_called(path):
    """As circuit-tracer's replacement model; undone by the old part."""
    ours, theirs = build("gpt2")
    plain, old = ours(tokens()), ours.get_submodule(path)
    theirs_point = pytest.importorskip("transformer_lens.hook_points").HookPoint
    for model, kind in ((ours, HookPoint), (theirs, theirs_point)):
        owner, _, last = path.rpartition(".")
        part = Wrapped(kind, model.get_submodule(path))
        model.get_submodule(owner).register_module(last, part)
        model.setup()
    same_calls(ours, theirs, lambda m: m(tokens()))
    assert path in ours.replaced_parts()
    ours.get_submodule(owner).register_module(last, old)
    assert ours.runs_core
    assert torch.equal(ours(tokens()), plain)


def test_blocks_are_deleted_and_methods_assigned_with_effect():
    model = built("gpt2")
    plain, first = model(tokens()), model(tokens(), stop_at_layer=1)
    block, model.blocks[1].forward = model.blocks[1], lambda x, **keywords: x
    close(model(tokens(), stop_at_layer=2), first)
    model.setup()
    close(model(tokens(), stop_at_layer=2), first)
    del block.forward
    assert torch.equal(model(tokens()), plain)
    del model.blocks[1]
    assert not model.runs_core
    close(model(tokens(), stop_at_layer=2), first)


def test_hooks_of_pytorch_on_a_part_are_called():
    model, seen = built("gpt2"), []
    handle = model.blocks[1].attn.register_forward_hook(lambda part, x, out: seen.append(out))
    _, cache = model.run_with_cache(tokens())
    assert torch.equal(seen[0], cache["attn_out", 1])
    handle.remove()
    assert model.runs_core


def test_patching_a_model_with_a_replaced_part_says_that_it_loops():
    model = built("gpt2")
    _, clean = model.run_with_cache(tokens())
    expected = patching.get_act_patch_mlp_out(model, tokens() + 1, clean, lambda x: x[0, -1, 3])
    model.blocks[0].mlp = Wrapped(HookPoint, model.blocks[0].mlp)
    model.setup()
    with pytest.warns(UserWarning, match=r"one forward for each cell.*blocks\.0\.mlp"):
        values = patching.get_act_patch_mlp_out(model, tokens() + 1, clean, lambda x: x[0, -1, 3])
    close(values, expected, 1e-6)


def test_a_copy_of_a_model_has_the_parts_that_were_built():
    model = built("gpt2")
    plain = model(tokens())
    assert deepcopy(model).runs_core
    assert torch.equal(deepcopy(model)(tokens()), plain)
    model.blocks[0].hook_mlp_out = Autoencoder(HookPoint, 32)
    with pytest.raises(InterpError, match="hook_mlp_out"):
        deepcopy(model)


# ---- embeddings ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cached", [True, False])
def test_generation_from_embeddings_is_theirs(name, cached):
    ours, theirs = build(name)
    if SHAPES[name].get("d_vocab_out"):
        pytest.skip("predicts other tokens than it reads")
    how = {"do_sample": False, "stop_at_eos": False, "max_new_tokens": 4, "verbose": False}
    embeds = ours.embed(tokens()).detach()
    for kind in ("input", "tokens"):
        # With a cache and no padding mask, TransformerLens adds positions of the wrong tokens.
        expected = theirs.generate(embeds, return_type=kind, use_past_kv_cache=False, **how)
        close(ours.generate(embeds, return_type=kind, use_past_kv_cache=cached, **how), expected)
    ids = ours.generate(tokens(), use_past_kv_cache=cached, **how)
    close(ours.generate(tokens(), return_type="embeds", **how), ours.embed(ids))
    assert ids.shape[1] < N_CTX
