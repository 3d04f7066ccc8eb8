"""What hooks, caches, losses and weights do: the same statements about the façade and theirs."""

from functools import cache

import pytest
import torch
from torch.testing import assert_close

from interp import InterpError
from interp.compat import (
    HookedTransformer,
    HookedTransformerConfig,
    TransformerLensKeyValueCache,
)
from tests.compat.shapes import build, built, close, fields, perturb, tokens
from tests.compat.words import word_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
RESID, Z = "blocks.0.hook_resid_pre", "blocks.1.attn.hook_z"
SCORES, PATTERN = "blocks.0.attn.hook_attn_scores", "blocks.0.attn.hook_pattern"


@cache
def made_by(library):
    return built("gpt2") if library == "ours" else build("gpt2")[1]


@pytest.fixture(params=["ours", "theirs"])
def model(request):
    made = made_by(request.param)
    made.reset_hooks(including_permanent=True)
    made.zero_grad()
    yield made
    made.reset_hooks(including_permanent=True)
    made.tokenizer = None


def add(value):
    return lambda x, hook: x + value


def double(x, hook):
    return 2 * x


# ---- which hooks run, and when ------------------------------------------------------------------


def test_hooks_run_in_the_order_of_adding(model):
    plain = model.run_with_cache(tokens())[1][RESID]
    model.add_hook(RESID, add(1))
    model.add_hook(RESID, double)
    assert_close(model.run_with_cache(tokens())[1][RESID], 2 * (plain + 1))
    model.reset_hooks()
    model.add_hook(RESID, add(1))
    model.add_hook(RESID, double, prepend=True)
    assert_close(model.run_with_cache(tokens())[1][RESID], 2 * plain + 1)


def test_added_hooks_survive_other_runs_until_they_are_reset(model):
    plain = model(tokens())
    model.add_hook(Z, lambda z, hook: 0 * z)
    edited = model.run_with_hooks(tokens(), fwd_hooks=[(RESID, lambda x, hook: None)])
    assert_close(model(tokens()), edited)
    assert not torch.allclose(edited, plain)
    model.reset_hooks()
    assert torch.equal(model(tokens()), plain)


def test_a_context_removes_its_own_hooks_only(model):
    model.add_hook(Z, double)
    expected = model(tokens())
    with model.hooks(fwd_hooks=[(RESID, double)]):
        with model.hooks(fwd_hooks=[(RESID, add(1))]):
            assert len(model.hook_dict[RESID].fwd_hooks) == 2
        assert len(model.hook_dict[RESID].fwd_hooks) == 1
    assert torch.equal(model(tokens()), expected)


def test_permanent_hooks_are_removed_by_name_only(model):
    plain = model(tokens())
    model.add_perma_hook(Z, lambda z, hook: 0 * z)
    edited = model(tokens())
    model.reset_hooks()
    assert torch.equal(model(tokens()), edited)
    model.reset_hooks(including_permanent=True)
    assert torch.equal(model(tokens()), plain)


def test_a_hook_sees_its_point_and_its_context(model):
    seen = []

    def count(x, hook):
        hook.ctx["n"] = hook.ctx.get("n", 0) + 1
        seen.append((hook.name, hook.layer(), hook.ctx["n"]))

    model.add_hook(Z, count)
    model(tokens())
    model(tokens())
    assert seen == [(Z, 1, 1), (Z, 1, 2)]
    model.reset_hooks()
    assert not model.hook_dict[Z].ctx


# ---- what hooks may return ----------------------------------------------------------------------


@pytest.mark.parametrize("returns", [True, False])
def test_a_change_in_place_has_effect_whether_it_is_returned(model, returns):
    def erase(x, hook):
        x[:, 2] = 0
        return x if returns else None

    def anew(x, hook):
        return torch.where((torch.arange(x.shape[1]) == 2)[:, None], 0.0, x)

    logits, expected = (
        model.run_with_hooks(tokens(), fwd_hooks=[(RESID, hook)]) for hook in (erase, anew)
    )
    assert_close(logits, expected, atol=1e-12, rtol=0)
    assert not torch.allclose(logits, model(tokens()))


def test_a_hook_that_only_reads_changes_nothing(model):
    read = model.run_with_hooks(tokens(), fwd_hooks=[(RESID, lambda x, hook: None)])
    assert torch.equal(read, model(tokens()))


def test_an_exception_of_a_hook_comes_through(model):
    def fails(x, hook):
        raise ZeroDivisionError("own")

    with pytest.raises(ZeroDivisionError, match="own"):
        model.run_with_hooks(tokens(), fwd_hooks=[(Z, fails)])
    assert not any(point.fwd_hooks for point in model.hook_dict.values())


def test_edited_scores_unmask(model):
    with model.hooks(fwd_hooks=[(SCORES, lambda scores, hook: torch.zeros_like(scores))]):
        pattern = model.run_with_cache(tokens())[1][PATTERN]
    n = tokens().shape[1]
    assert_close(pattern, torch.full_like(pattern, 1 / n))
    plain = model.run_with_cache(tokens())[1][PATTERN]
    assert not plain.triu(1).any()


@pytest.mark.parametrize("place", ["blocks.1.ln1.hook_normalized", "blocks.1.ln1.hook_scale"])
def test_hooks_of_ln1_run_for_queries_keys_and_values(model, place):
    counts = []
    model.run_with_hooks(tokens(), fwd_hooks=[(place, lambda x, hook: counts.append(0))])
    assert len(counts) == 3
    counts.clear()
    other = place.replace("ln1", "ln2")
    model.run_with_hooks(tokens(), fwd_hooks=[(other, lambda x, hook: counts.append(0))])
    assert len(counts) == 1


def test_noise_of_a_hook_on_ln1_differs_between_queries_keys_and_values():
    def noise(x, hook):
        return x + torch.randn_like(x)

    made = []
    for model in build("gpt2"):
        torch.manual_seed(0)
        hooks = [("blocks.1.ln1.hook_normalized", noise)]
        made.append(model.run_with_hooks(tokens(), fwd_hooks=hooks))
    assert_close(*made, atol=1e-9, rtol=0)


# ---- caches -------------------------------------------------------------------------------------


def test_filters(model):
    names = model.run_with_cache(tokens(), names_filter=lambda name: name.endswith("hook_z"))[1]
    assert sorted(names) == ["blocks.0.attn.hook_z", Z]
    assert list(model.run_with_cache(tokens(), names_filter=[Z])[1]) == [Z]
    assert not list(model.run_with_cache(tokens(), names_filter=lambda name: False)[1])


def test_a_cache_gives_the_same_object_which_later_runs_leave_alone(model):
    cache = model.run_with_cache(tokens())[1]
    assert cache["z", 1] is cache[Z]
    before = cache[Z].clone()
    model.run_with_hooks(tokens().flip(1), fwd_hooks=[(Z, double)])
    assert torch.equal(cache[Z], before)
    other = model.run_with_cache(tokens().flip(1))[1]
    assert not torch.allclose(other[Z], before)


def test_a_cached_run_keeps_its_graph_and_the_cache_has_none(model):
    loss, cache = model.run_with_cache(tokens(), return_type="loss")
    assert not cache[Z].requires_grad
    loss.backward()
    assert model.blocks[0].attn.W_Q.grad is not None


def test_incl_bwd_gives_gradients_of_activations_and_parameters(model):
    cache = model.run_with_cache(tokens(), return_type="loss", incl_bwd=True)[1]
    assert cache[f"{Z}_grad"].shape == cache[Z].shape
    assert cache[f"{Z}_grad"].any()
    assert model.blocks[1].mlp.W_in.grad.any()
    model.zero_grad()
    without = model.run_with_cache(tokens(), return_type="loss")[1]
    assert f"{Z}_grad" not in without
    assert model.blocks[1].mlp.W_in.grad is None


# ---- texts and losses ---------------------------------------------------------------------------


@pytest.fixture(params=["right", "left"])
def side(request):
    return request.param


def test_bos_is_prepended_also_if_the_text_spells_it_out(model, side):
    model.set_tokenizer(word_tokenizer(side))
    assert model.to_tokens("w3 w4").tolist() == [[1, 3, 4]]
    assert model.to_tokens("<bos> w3").tolist() == [[1, 1, 3]]
    assert model.to_tokens("w3 w4", prepend_bos=False).tolist() == [[3, 4]]
    padded = {"right": [[1, 3, 4], [1, 5, 0]], "left": [[1, 3, 4], [0, 1, 5]]}
    assert model.to_tokens(["w3 w4", "w5"]).tolist() == padded[side]


def test_padding_is_masked_on_the_left_only(model, side):
    model.set_tokenizer(word_tokenizer(side))
    ids = model.to_tokens(["w3 w4 w5", "w6"])
    columns = slice(-2, None) if side == "left" else slice(2)
    alone = model("w6")[0]
    assert_close(model(ids)[1, columns], alone, atol=1e-12, rtol=0)
    pattern = model.run_with_cache(ids)[1][PATTERN][1]
    attended = pattern[:, -1][:, ids[1] == 0]
    assert bool(attended.any()) is (side == "right")


def test_the_loss_counts_padding_unless_it_is_masked(model, side):
    model.set_tokenizer(word_tokenizer(side))
    ids = model.to_tokens(["w3 w4 w5", "w6"])
    per_token = model(ids, return_type="loss", loss_per_token=True)
    loss = model(ids, return_type="loss")
    if side == "right":
        assert_close(loss, per_token.mean())
    real = ids != 0
    masked_loss = model(ids, return_type="loss", attention_mask=real.long())
    both = real[:, 1:] & real[:, :-1]
    log_probs = model(ids, attention_mask=real.long()).log_softmax(-1)[:, :-1]
    expected = -log_probs.gather(-1, ids[:, 1:, None])[..., 0][both].mean()
    assert_close(masked_loss, expected)
    if side == "left":
        assert_close(loss, masked_loss)


def test_return_types(model):
    both = model(tokens(), return_type="both")
    assert torch.equal(both.logits, model(tokens()))
    assert torch.equal(both.loss, model(tokens(), return_type="loss"))
    assert model(tokens(), return_type=None) is None
    assert_close(model.loss_fn(both.logits, tokens()), both.loss)


# ---- weights ------------------------------------------------------------------------------------


def test_stacked_weights_are_copies_and_those_of_blocks_are_parameters(model):
    plain, W_Q = model(tokens()), model.blocks[1].attn.W_Q
    with torch.no_grad():
        model.W_Q[1] = 0
    assert torch.equal(model(tokens()), plain)
    before = W_Q.detach().clone()
    with torch.no_grad():
        W_Q.zero_()
    try:
        assert not torch.allclose(model(tokens()), plain)
        assert not model.W_Q[1].any()
    finally:
        with torch.no_grad():
            W_Q.copy_(before)
    model(tokens(), return_type="loss").backward()
    assert isinstance(W_Q, torch.nn.Parameter)
    assert W_Q.grad.shape == W_Q.shape
    assert model.W_U is model.unembed.W_U


def test_moving_a_model_updates_its_configuration(model):
    model.cfg.device = "elsewhere"
    model.to("cpu")
    assert str(model.cfg.device) == "cpu"
    model.cfg.device = "elsewhere"
    model.cpu()
    assert str(model.cfg.device) == "cpu"


# ---- the façade's own ---------------------------------------------------------------------------


def test_a_return_of_another_shape_is_refused_by_name():
    for wrong in (torch.zeros(3, 5), 1.0):
        with pytest.raises(InterpError, match=Z):
            made_by("ours").run_with_hooks(tokens(), fwd_hooks=[(Z, lambda z, hook, w=wrong: w)])


def test_cached_keys_are_not_those_of_a_kv_cache():
    ours = built("llama")
    kv_cache = TransformerLensKeyValueCache.init_cache(ours.cfg, "cpu", 2)
    cache = ours.run_with_cache(tokens(), past_kv_cache=kv_cache)[1]
    cache["k", 0].zero_()
    cache["v", 0].zero_()
    assert kv_cache[0].past_keys.any()
    assert kv_cache[0].past_values.any()


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma-2", "bloom"])
@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
def test_every_activation_of_padded_texts_is_theirs(name, direction):
    theirs = pytest.importorskip("transformer_lens")
    values = fields(name) | {"attention_dir": direction}
    model = theirs.HookedTransformer(theirs.HookedTransformerConfig(**values))
    ours = HookedTransformer(HookedTransformerConfig(**values))
    perturb(model)
    ours.load_state_dict(model.state_dict())
    mask = torch.ones_like(tokens())
    mask[0, :2], mask[1, -3:] = 0, 0
    cache, expected = (
        each.run_with_cache(tokens(), attention_mask=mask)[1] for each in (ours, model)
    )
    for key in expected:
        close(cache[key], expected[key])
