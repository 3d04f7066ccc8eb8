"""Weights: how they are drawn and processed, and what is computed of them."""

import pytest
import torch
from torch.testing import assert_close

from interp import InterpError
from interp.compat import HookedTransformer, HookedTransformerConfig
from tests.compat.shapes import SHAPES, build, built, close, fields, tokens

MODES = ("xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal", "muP")
BILINEAR = ("gpt2", "bloom", "attention-only")


def even(model):
    model.load_and_process_state_dict(model.state_dict(), refactor_factored_attn_matrices=True)


# ---- laws ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BILINEAR)
def test_even_factors_change_no_pattern_and_no_result(name):
    model = built(name)
    model.process_weights_()
    expected = model.run_with_cache(tokens())[1]
    model.process_weights_(refactor_factored_attn_matrices=True)
    cache = model.run_with_cache(tokens())[1]
    for point in ("pattern", "attn_scores", "resid_post"):
        assert_close(cache[point, 1].nan_to_num(neginf=0), expected[point, 1].nan_to_num(neginf=0))
    assert not torch.allclose(cache["q", 1], expected["q", 1])


def test_even_factors_are_even():
    model = built("gpt2")
    even(model)
    W_O = model.W_O
    assert_close(W_O @ W_O.mT, torch.eye(8, dtype=W_O.dtype).expand(2, 4, 8, 8))
    joint = [torch.cat([model.W_Q, model.b_Q[..., None, :]], -2)]
    joint += [torch.cat([model.W_K, model.b_K[..., None, :]], -2)]
    assert_close(*(weights.norm(dim=-2) for weights in joint))
    assert not model.b_V.any()


@pytest.mark.parametrize("name", ["pythia", "llama"])
def test_rotated_queries_have_no_even_factors(name):
    with pytest.raises(InterpError, match="rotated"):
        even(built(name))


def test_processing_a_model_keeps_its_log_probabilities():
    model = built("opt")
    before, W_U = model(tokens()).log_softmax(-1), model.W_U.clone()
    model.process_weights_()
    assert_close(model(tokens()).log_softmax(-1), before)
    assert not torch.allclose(model.W_U, W_U)


@pytest.mark.parametrize("name", ["gpt2", "pythia", "llama", "gemma-2", "solu"])
def test_folded_norms_keep_their_names_and_are_the_identity(name):
    """As TransformerLens 3.9's: a folded state can be loaded into the model that it came from."""
    model = built(name)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if "ln" in key:
                weight.add_(torch.rand_like(weight))
    state, before = model.state_dict(), model(tokens()).log_softmax(-1)
    folded = model.fold_layer_norm(state)
    assert list(folded) == list(state)
    assert bool((folded["ln_final.w"] == 1).all())
    assert not torch.equal(folded["unembed.W_U"], state["unembed.W_U"])
    again = model.fold_layer_norm(folded)
    for key, weight in folded.items():
        assert_close(again[key], weight)
    model.load_state_dict(folded)
    assert_close(model(tokens()).log_softmax(-1), before)


def test_weights_can_be_folded_without_centring_and_biases_are_not_left_behind():
    model = built("gpt2")
    state = {k: 0 * x if "ln" in k and k[-1] == "b" else x for k, x in model.state_dict().items()}
    state["blocks.0.ln1.w"] = torch.full_like(state["blocks.0.ln1.w"], 2.0)
    folded = model.fold_layer_norm(state, fold_biases=False, center_weights=False)
    assert_close(folded["blocks.0.attn.W_Q"], 2 * state["blocks.0.attn.W_Q"])
    state["blocks.0.ln1.b"] = torch.ones_like(state["blocks.0.ln1.b"])
    with pytest.raises(InterpError, match="fold_biases=True"):
        model.fold_layer_norm(state, fold_biases=False)


def test_a_state_dict_without_a_matrix_is_refused():
    model = built("gpt2")
    state = model.state_dict()
    del state["blocks.1.attn.W_K"]
    with pytest.raises(InterpError, match=r"blocks\.1\.attn\.W_K"):
        model.load_and_process_state_dict(state)


def test_circuits_of_heads():
    model = built("llama")
    assert_close(model.OV[1, 3].AB, model.W_V[1, 3] @ model.W_O[1, 3])
    assert_close(model.QK[0, 2].AB, model.W_Q[0, 2] @ model.W_K[0, 2].mT)
    assert_close(model.blocks[1].attn.OV[3].AB, model.OV[1, 3].AB)
    scores = model.all_composition_scores("V")
    first, second = model.OV[0, 1], model.OV[1, 2]
    expected = (first.AB @ second.AB).norm() / first.AB.norm() / second.AB.norm()
    assert_close(scores[0, 1, 1, 2], expected)
    assert not scores[1].any()
    assert not scores[0, :, 0].any()


def test_an_unknown_mode_is_refused():
    with pytest.raises(InterpError, match="mode"):
        built("gpt2").all_composition_scores("S")
    with pytest.raises(InterpError, match="init_mode"):
        HookedTransformer(HookedTransformerConfig(**fields("gpt2"), init_mode="zeros"))


def test_ungrouped_heads_change_nothing_until_one_is_edited():
    model, place = built("llama"), "blocks.0.attn.hook_k"
    plain = model(tokens())
    model.set_ungroup_grouped_query_attention(True)
    assert_close(model(tokens()), plain, atol=1e-12, rtol=0)

    def zero_first(x, hook):
        x[:, :, 0] = 0

    cache = model.run_with_cache(tokens())[1]
    with model.hooks(fwd_hooks=[(place, zero_first)]):
        edited = model.run_with_cache(tokens())[1]
    assert cache["k", 0].shape[2] == model.cfg.n_heads
    assert not torch.allclose(edited["z", 0][:, :, 0], cache["z", 0][:, :, 0])
    assert torch.equal(edited["z", 0][:, :, 1:], cache["z", 0][:, :, 1:])


def test_hook_tokens_replace_what_is_embedded():
    model = HookedTransformer(HookedTransformerConfig(**fields("gpt2"), use_hook_tokens=True))
    other = (tokens() + 1) % 7
    edited = model.run_with_hooks(tokens(), fwd_hooks=[("hook_tokens", lambda t, hook: other)])
    assert_close(edited, model(other))
    assert torch.equal(model.run_with_cache(tokens())[1]["hook_tokens"], tokens())
    with pytest.raises(InterpError, match="vocabulary"):
        model.run_with_hooks(tokens(), fwd_hooks=[("hook_tokens", lambda t, hook: t + 1000)])


def test_the_stream_before_the_first_block():
    model = built("gpt2")
    stream, ids, _, mask = model.input_to_embed(tokens())
    assert torch.equal(ids, tokens())
    assert mask is None
    assert_close(model(stream, start_at_layer=0), model(tokens()))


# ---- against TransformerLens --------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.slow
def test_weights_are_drawn_as_theirs(mode):
    theirs = pytest.importorskip("transformer_lens")
    for name in ("gpt2", "llama"):
        values = fields(name, torch.float32) | {"init_mode": mode}
        model = theirs.HookedTransformer(theirs.HookedTransformerConfig(**values))
        parameters = dict(HookedTransformer(HookedTransformerConfig(**values)).named_parameters())
        for key, weight in model.named_parameters():
            assert torch.equal(parameters[key], weight)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BILINEAR)
@pytest.mark.slow
def test_even_factors_are_theirs(name):
    ours, model = build(name)
    for each in (ours, model):
        even(each)
    for layer in range(2):
        for parameter, expected in zip(
            ours.blocks[layer].attn.parameters(), model.blocks[layer].attn.parameters(), strict=True
        ):
            close(parameter.abs(), expected.abs(), 1e-4)  # singular vectors, up to their signs
    close(ours(tokens()), model(tokens()), 1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("mode", ["Q", "K", "V"])
@pytest.mark.slow
def test_composition_scores_are_theirs(name, mode):
    ours, model = build(name)
    close(ours.all_composition_scores(mode), model.all_composition_scores(mode))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("flag", ["use_hook_mlp_in", "use_split_qkv_input"])
@pytest.mark.slow
def test_ungrouped_activations_are_theirs(flag):
    pair = build("llama")
    for model in pair:
        model.set_ungroup_grouped_query_attention(True)
        setattr(model.cfg, flag, True)
    cache, expected = (
        model.run_with_cache(tokens(), return_type="loss", incl_bwd=True)[1] for model in pair
    )
    assert sorted(cache) == sorted(expected)
    for key in expected:
        close(cache[key], expected[key])
