"""The façade by itself, and against the model of this package that it is built on."""

from copy import deepcopy

import pytest
import torch
from torch.testing import assert_close

import interp
from interp import InterpError
from interp.compat import HookedTransformer, HookedTransformerConfig, HookPoint
from tests.compat.shapes import SHAPES, built, fields, tokens

TEXT = "def f(x):\n    return x"


@pytest.fixture(scope="module")
def processed():
    return HookedTransformer.from_pretrained("python-2l")


@pytest.fixture(scope="module")
def unprocessed():
    return HookedTransformer.from_pretrained_no_processing("python-2l")


@pytest.fixture(scope="module")
def source():
    return interp.load("python-2l")


def test_unprocessed_is_the_same_model(unprocessed, source):
    ids = source.to_tokens(TEXT)
    assert torch.equal(unprocessed.to_tokens(TEXT), ids)
    assert_close(unprocessed(ids), source(ids), atol=1e-5, rtol=0)
    assert_close(unprocessed(ids, return_type="loss"), source.loss(ids), atol=1e-6, rtol=0)
    cache, source_cache = unprocessed.run_with_cache(ids)[1], source.run_with_cache(ids)[1]
    for name in ("blocks.1.attn.hook_pattern", "blocks.0.hook_resid_post", "blocks.0.attn.hook_z"):
        assert_close(cache[name], source_cache[name], atol=1e-5, rtol=0)


def test_processed_has_the_same_log_probabilities_but_other_weights(processed, source):
    ids = source.to_tokens(TEXT)
    computed, expected = (model(ids).log_softmax(-1) for model in (processed, source))
    assert_close(computed, expected, atol=1e-4, rtol=0)
    assert not torch.allclose(processed(ids), source(ids), atol=1e-3)
    assert_close(processed.W_U.mean(-1), torch.zeros(processed.cfg.d_model), atol=1e-6, rtol=0)
    assert not processed.b_V.any()


@pytest.mark.parametrize("name", SHAPES)
def test_recording_everything_changes_nothing(name):
    model = built(name)
    recorded, cache = model.run_with_cache(tokens())
    assert_close(recorded, model(tokens()), atol=1e-12, rtol=0)
    assert cache["resid_post", -1] is cache["blocks.1.hook_resid_post"]
    assert not cache["resid_post", -1].requires_grad
    assert recorded.requires_grad


@pytest.mark.parametrize("name", SHAPES)
def test_split_inputs_change_nothing_until_they_are_edited(name):
    model = built(name)
    plain = model(tokens())
    model.set_use_split_qkv_input(True)
    assert_close(model(tokens()), plain, atol=1e-12, rtol=0)

    def zero_one_head(x, hook):
        x[:, :, 0] = 0

    edited = model.run_with_hooks(tokens(), fwd_hooks=[("blocks.1.hook_q_input", zero_one_head)])
    assert not torch.allclose(edited, plain)


def test_a_hook_in_place_is_one_that_returns():
    model, place = built("gpt2"), "blocks.0.hook_resid_pre"

    def in_place(x, hook):
        x[:, 0] = 0

    def returns(x, hook):
        x = x.clone()
        x[:, 0] = 0
        return x

    logits, expected = (
        model.run_with_hooks(tokens(), fwd_hooks=[(place, fn)]) for fn in (in_place, returns)
    )
    assert torch.equal(logits, expected)
    assert not torch.allclose(logits, model(tokens()))


def test_a_return_is_broadcast():
    model, place = built("gpt2"), "blocks.0.attn.hook_z"
    broadcast = model.run_with_hooks(tokens(), fwd_hooks=[(place, lambda x, hook: x.new_zeros(1))])
    assert_close(
        broadcast, model.run_with_hooks(tokens(), fwd_hooks=[(place, lambda x, hook: 0 * x)])
    )


def test_edited_scores_may_unmask():
    model, seen = built("gpt2"), {}
    hooks = [
        ("blocks.0.attn.hook_attn_scores", lambda x, hook: torch.zeros_like(x)),
        ("blocks.0.attn.hook_pattern", lambda x, hook: seen.update(pattern=x.clone())),
    ]
    model.run_with_hooks(tokens(), fwd_hooks=hooks)
    assert_close(seen["pattern"], torch.full_like(seen["pattern"], 1 / tokens().shape[1]))


def test_hooks_leave_the_core_alone():
    model = built("gpt2")
    plain = model.core(tokens())
    model.add_hook("blocks.0.hook_mlp_out", lambda x, hook: 0 * x)
    assert not torch.allclose(model(tokens()), plain)
    assert torch.equal(model.core(tokens()), plain)
    model.reset_hooks()
    assert_close(model(tokens()), plain, atol=1e-12, rtol=0)


def test_optional_points_need_their_setting():
    model = built("gpt2")
    with pytest.raises(InterpError, match="set_use_attn_result"):
        model.add_hook("blocks.0.attn.hook_result", lambda x, hook: None)
    model.cfg.use_attn_result = True
    model.add_hook("blocks.0.attn.hook_result", lambda x, hook: 0 * x)
    assert not torch.allclose(model(tokens()), model.core(tokens()))


def test_parameters_train_and_share_the_weights_of_the_core():
    model = built("llama")
    before = model(tokens(), return_type="loss")
    before.backward()
    assert all(
        parameter.grad is not None for name, parameter in model.named_parameters() if "W_" in name
    )
    assert all(parameter.grad is None for parameter in model.core.parameters())
    model(tokens(), return_type="loss").backward()
    twice = model.blocks[0].attn.W_Q.grad.clone()
    model.zero_grad()
    model(tokens(), return_type="loss").backward()
    assert_close(twice, 2 * model.blocks[0].attn.W_Q.grad)
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert model(tokens(), return_type="loss") < before


@pytest.mark.parametrize("how", ["data", "parameter", "in place"])
def test_replaced_parameters_are_used(how):
    model, W_Q = built("gpt2"), None
    W_Q = model.blocks[0].attn.W_Q
    plain, new = model(tokens()), torch.zeros_like(W_Q)
    if how == "data":
        W_Q.data = new
    elif how == "parameter":
        model.blocks[0].attn.W_Q = torch.nn.Parameter(new)
    else:
        with torch.no_grad():
            W_Q.zero_()
    assert not torch.allclose(model(tokens()), plain)
    assert not model.core.blocks[0].attn.W_Q.any()


@pytest.mark.parametrize("name", SHAPES)
def test_copies_and_state_dicts(name):
    model = built(name)
    copy = deepcopy(model)
    assert torch.equal(copy(tokens()), model(tokens()))
    with torch.no_grad():
        copy.embed.W_E.zero_()
    assert not torch.allclose(copy(tokens()), model(tokens()))
    copy.load_state_dict(model.state_dict())
    assert torch.equal(copy(tokens()), model(tokens()))


def test_moving_updates_the_configuration():
    model = built("solu")
    plain = model(tokens())
    model.to(torch.float32)
    assert model.cfg.dtype == torch.float32
    assert model.W_Q.dtype == torch.float32
    assert_close(model(tokens()).double(), plain, atol=1e-4, rtol=0)
    model(tokens(), return_type="loss").backward()
    assert model.blocks[0].mlp.W_in.grad.dtype == torch.float32


def test_left_padding_is_masked_and_right_padding_is_not(processed):
    model, texts = deepcopy(processed), [TEXT, "def f(x):"]
    model.tokenizer = deepcopy(processed.tokenizer)
    alone = model(texts[1])[0, -1]
    left = model(texts, padding_side="left")[1, -1]
    assert_close(left, alone, atol=1e-4, rtol=0)
    ids = model.to_tokens(texts)
    assert model.tokenizer.padding_side == "right"
    both = model(ids, return_type="both")
    per_token = model(ids, return_type="loss", loss_per_token=True)
    assert_close(both.loss, per_token.mean())


def test_texts_and_tokens(processed):
    ids = processed.to_tokens(TEXT)
    assert processed.to_str_tokens(TEXT)[0] == processed.tokenizer.bos_token
    assert processed.to_string(ids[0, 1:]) == TEXT
    assert processed.to_tokens(TEXT, prepend_bos=False).tolist() == ids[:, 1:].tolist()
    assert processed.to_single_str_token(processed.to_single_token(" f")) == " f"
    assert processed.get_token_position(" f", TEXT) == ids[0].tolist().index(
        processed.to_single_token(" f")
    )
    with pytest.raises(InterpError, match="single token"):
        processed.to_single_token(TEXT)


def test_generation_is_greedy_or_seeded(processed, source):
    greedy = processed.generate(TEXT, max_new_tokens=4, do_sample=False, return_type="tokens")
    assert torch.equal(greedy, source.generate(TEXT, max_new_tokens=4))
    drawn = []
    for _ in range(2):
        torch.manual_seed(1)
        drawn.append(processed.generate(TEXT, max_new_tokens=4, top_k=5))
    assert drawn[0] == drawn[1]
    assert drawn[0].startswith(TEXT)


@pytest.mark.parametrize(
    "field", [{"use_attention_sinks": True}, {"act_fn": "xielu"}, {"n_devices": 2}]
)
def test_what_is_not_supported_is_refused_by_name(field):
    with pytest.raises(InterpError, match=next(iter(field))):
        HookedTransformer(HookedTransformerConfig(**{**fields("gpt2"), **field}))


def test_models_that_it_cannot_express_are_refused():
    with pytest.raises(InterpError, match="not a decoder"):
        HookedTransformer.from_pretrained("python-mlm")


def test_a_module_that_is_added_to_the_model_changes_nothing():
    model = built("gpt2")
    plain = model(tokens())
    model.probe = torch.nn.Linear(2, 2)
    assert model.runs_core
    assert torch.equal(model(tokens()), plain)


def test_calls_that_are_missing_name_what_to_use():
    with pytest.raises(InterpError, match="load_dataset"):
        built("gpt2").sample_datapoint()


def test_what_is_cached_shares_no_memory():
    model = built("gpt2")
    loss, cache = model.run_with_cache(tokens(), return_type="loss")
    before = cache["resid_pre", 1].clone()
    for name, activation in cache.items():
        if name != "blocks.1.hook_resid_pre":
            activation.zero_()
    assert torch.equal(cache["resid_pre", 1], before)
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    model(tokens(), return_type="loss").backward()
    for name, parameter in model.named_parameters():
        assert_close(gradients[name], parameter.grad, atol=1e-12, rtol=0)


def test_hooks_of_pytorch_on_a_hook_point_are_called():
    model = built("gpt2")
    plain = model(tokens())
    handle = model.blocks[0].hook_mlp_out.register_forward_hook(lambda module, inputs, out: 0 * out)
    hooked = model(tokens())
    assert not torch.allclose(hooked, plain)
    hooks = [("blocks.0.hook_mlp_out", lambda x, hook: 0 * x)]
    handle.remove()
    assert torch.equal(model.run_with_hooks(tokens(), fwd_hooks=hooks), hooked)
    assert torch.equal(model(tokens()), plain)


@pytest.mark.parametrize("name", ["gpt2", "pythia", "llama", "gemma-2", "solu"])
def test_an_assigned_forward_of_an_mlp_is_used(name):
    """As SAELens adds ``mlp.hook_in``: a point in a new forward around the old one."""
    model = built(name)
    unhooked, (plain, plain_cache) = model(tokens()), model.run_with_cache(tokens())
    mlp = model.blocks[1].mlp
    mlp.hook_in, before = HookPoint(), mlp.forward
    mlp.forward = lambda x: before(mlp.hook_in(x))
    model.setup()
    again, cache = model.run_with_cache(tokens())
    assert_close(again, plain, atol=1e-12, rtol=0)
    for key, activation in plain_cache.items():
        assert_close(cache[key], activation, atol=1e-12, rtol=0)
    assert cache["blocks.1.mlp.hook_in"].shape == cache["resid_pre", 1].shape
    zero = [("blocks.1.mlp.hook_in", lambda x, hook: 0 * x)]
    assert not torch.allclose(model.run_with_hooks(tokens(), fwd_hooks=zero), plain)
    calls = []
    count = [("blocks.1.mlp.hook_post", lambda x, hook: calls.append(hook.name))]
    model.run_with_hooks(tokens(), fwd_hooks=count)
    assert len(calls) == 1
    mlp.forward = lambda x: torch.zeros_like(before(x))
    without = model(tokens())
    ablated = [("blocks.1.hook_mlp_out", lambda x, hook: 0 * x)]
    del mlp.forward, mlp.hook_in
    assert_close(without, model.run_with_hooks(tokens(), fwd_hooks=ablated))
    assert torch.equal(model(tokens()), unhooked)


def test_a_forward_assigned_to_the_model_is_used():
    model = built("gpt2")
    before = model.forward
    model.forward = lambda *inputs, **options: 2 * before(*inputs, **options)
    assert torch.equal(model(tokens()), 2 * before(tokens()))
