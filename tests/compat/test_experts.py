"""Mixtures of experts of the façade."""

import pytest
import torch
from torch.testing import assert_close

import interp
from interp import InterpError
from interp.compat import HookedTransformer, HookedTransformerConfig
from interp.compat.hooked_config import hooked_config
from interp.compat.source_state import state_of
from tests.compat.shapes import close, fields, perturb, tokens

pytestmark = pytest.mark.slow

ROUTED = {"num_experts": 4, "experts_per_token": 2}


def made(renormalised=True, dtype=torch.float64):
    values = fields("llama", dtype) | ROUTED | {"norm_topk_prob": renormalised}
    model = HookedTransformer(HookedTransformerConfig(**values))
    perturb(model)
    return model


def test_experts_are_those_of_the_core():
    model = made()
    config = model.core.config
    assert config.decoder.mlp.experts.n_experts == 4
    cache = model.run_with_cache(tokens())[1]
    indices = cache["blocks.0.mlp.hook_expert_indices"]
    assert indices.shape == (tokens().numel(), 2)
    for expert in range(4):
        rows = cache[f"blocks.0.mlp.experts.{expert}.hook_post"]
        assert rows.shape == (int((indices == expert).sum()), model.cfg.d_mlp)
    assert_close(cache["blocks.0.mlp.hook_expert_weights"].sum(-1), torch.ones(tokens().numel()))


def test_one_expert_reaches_its_own_tokens_only():
    model, place = made(), "blocks.1.mlp.experts.2.hook_post"
    cache = model.run_with_cache(tokens())[1]
    indices = cache["blocks.1.mlp.hook_expert_indices"].unflatten(0, tokens().shape)
    with model.hooks(fwd_hooks=[(place, lambda post, hook: 0 * post)]):
        edited = model.run_with_cache(tokens())[1]
    changed = (edited["mlp_out", 1] - cache["mlp_out", 1]).abs().amax(-1) > 1e-9
    assert torch.equal(changed, (indices == 2).any(-1))


def test_a_router_that_is_edited_takes_other_experts():
    model, place = made(), "blocks.0.mlp.hook_expert_weights"
    edited = model.run_with_hooks(tokens(), fwd_hooks=[(place, lambda w, hook: w.flip(-1))])
    assert not torch.allclose(edited, model(tokens()))
    same = model.run_with_hooks(tokens(), fwd_hooks=[(place, lambda w, hook: w.clone())])
    assert_close(same, model(tokens()), atol=1e-6, rtol=0)  # weights are hooked in float32


def test_norms_fold_into_the_router_and_the_experts():
    model = made()
    before = model(tokens()).log_softmax(-1)
    model.process_weights_()
    assert "blocks.0.ln2.w" not in model.state_dict()
    assert_close(model(tokens()).log_softmax(-1), before)


def test_a_model_of_this_package_with_experts_is_read():
    source = made().core
    model = interp.Transformer(source.config).double()
    model.load_state_dict(source.state_dict())
    cfg = hooked_config(model.config)
    assert (cfg.num_experts, cfg.experts_per_token, cfg.norm_topk_prob) == (4, 2, True)
    cfg.dtype = torch.float64
    hooked = HookedTransformer(cfg)
    hooked.load_state_dict(state_of(model, cfg))
    # The weights of experts are a softmax in float32, as in TransformerLens.
    assert_close(hooked(tokens()), model(tokens()), atol=1e-6, rtol=0)


def test_weights_that_no_stack_has_are_refused():
    with pytest.raises(InterpError, match="W_in"):
        made().W_in  # noqa: B018 - a property


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("renormalised", [True, False])
def test_mixtures_of_experts_are_theirs(renormalised):
    theirs = pytest.importorskip("transformer_lens")
    values = fields("llama") | ROUTED | {"norm_topk_prob": renormalised}
    model = theirs.HookedTransformer(theirs.HookedTransformerConfig(**values)).to(torch.float64)
    perturb(model)
    ours = made(renormalised)
    assert sorted(dict(ours.named_parameters())) == sorted(dict(model.named_parameters()))
    ours.load_state_dict(model.state_dict())
    cache, expected = (
        each.run_with_cache(tokens(), return_type="loss", incl_bwd=True)[1]
        for each in (ours, model)
    )
    assert sorted(cache) == sorted(expected)
    for key in expected:
        if expected[key].numel():
            close(cache[key], expected[key], 1e-6)
    parameters = dict(ours.named_parameters())
    for key, parameter in model.named_parameters():
        if parameter.grad is not None:
            close(parameters[key].grad, parameter.grad, 1e-6)


def swap(indices, hook):
    indices[:, 0] = (indices[:, 1] + 1) % 4


EDITS = {
    "hook_expert_weights": lambda weights, hook: weights.flip(-1),
    "hook_expert_indices": swap,
    "experts.2.hook_post": lambda post, hook: 0.5 * post + 0.1,
    "experts.1.hook_gate": lambda gate, hook: gate + 1.0,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", EDITS)
def test_edits_of_experts_are_theirs(place):
    theirs = pytest.importorskip("transformer_lens")
    values = fields("llama") | ROUTED
    model = theirs.HookedTransformer(theirs.HookedTransformerConfig(**values)).to(torch.float64)
    perturb(model)
    ours = made(renormalised=False)
    ours.load_state_dict(model.state_dict())
    hooks = [(f"blocks.0.mlp.{place}", EDITS[place])]
    with torch.no_grad():
        logits, expected = (
            each.run_with_hooks(tokens(), fwd_hooks=hooks) for each in (ours, model)
        )
        assert not torch.allclose(logits, ours(tokens()))
    close(logits, expected, 1e-6)
