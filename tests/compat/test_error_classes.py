"""An error of the façade is also of the class that TransformerLens raises in the same place."""

from importlib import import_module

import pytest
import torch

import interp.compat
import interp.compat.utils
from interp import InterpError
from tests.compat.shapes import build, tokens

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def small(library, **fields):
    sizes = {"n_layers": 1, "d_model": 8, "n_ctx": 4, "d_head": 4, "d_vocab": 5, "act_fn": "relu"}
    return library.HookedTransformer(library.HookedTransformerConfig(**{**sizes, **fields}))


def factored(library, inner=2):
    return library.FactoredMatrix(torch.randn(3, inner), torch.randn(2, 4))


def kv_cache(library, model):
    return library.TransformerLensKeyValueCache.init_cache(model.cfg, "cpu", 3)


def hooked(name, **how):
    return lambda lib, m, cache, utils: m.add_hook(name, lambda x, hook: x, **how)


GREEDY = {"stop_at_eos": False, "use_past_kv_cache": False, "verbose": False}
CALLS = {
    "a text without tokenizer": lambda lib, m, cache, utils: m("abc"),
    "an id outside of the vocabulary": lambda lib, m, cache, utils: m(torch.tensor([[999]])),
    "a negative id": lambda lib, m, cache, utils: m(torch.tensor([[-999]])),
    "ids that are no integers": lambda lib, m, cache, utils: m(torch.zeros(1, 5)),
    "more positions than n_ctx": lambda lib, m, cache, utils: m(torch.zeros(1, 50).long()),
    "a mask of another shape": lambda lib, m, cache, utils: m(
        tokens(), attention_mask=torch.ones(1, 3)
    ),
    "start_at_layer with ids": lambda lib, m, cache, utils: m([1, 2], start_at_layer=0),
    "a loss without tokens": lambda lib, m, cache, utils: m(
        torch.randn(1, 3, 32), start_at_layer=0, return_type="loss"
    ),
    "a KV cache for other rows": lambda lib, m, cache, utils: m(
        tokens(), past_kv_cache=kv_cache(lib, m)
    ),
    "to_tokens": lambda lib, m, cache, utils: m.to_tokens("a"),
    "to_string": lambda lib, m, cache, utils: m.to_string(tokens()),
    "to_str_tokens": lambda lib, m, cache, utils: m.to_str_tokens(tokens()),
    "to_single_token": lambda lib, m, cache, utils: m.to_single_token("ab"),
    "get_token_position": lambda lib, m, cache, utils: m.get_token_position(49, tokens()[0]),
    "set_tokenizer": lambda lib, m, cache, utils: m.set_tokenizer(3),
    "a hook of another name": hooked("nope"),
    "hook_result without its setting": hooked("blocks.0.attn.hook_result"),
    "hook_mlp_in without its setting": hooked("blocks.0.hook_mlp_in"),
    "hook_q_input without its setting": hooked("blocks.0.hook_q_input"),
    "hook_attn_in without its setting": hooked("blocks.0.hook_attn_in"),
    "the layer of hook_embed": lambda lib, m, cache, utils: m.hook_embed.layer(),
    "run_with_hooks of another name": lambda lib, m, cache, utils: m.run_with_hooks(
        tokens(), fwd_hooks=[("nope", lambda x, hook: x)]
    ),
    "a backward pass of logits": lambda lib, m, cache, utils: m.run_with_cache(
        tokens(), incl_bwd=True
    ),
    "an activation of another name": lambda lib, m, cache, utils: cache["nope", 0],
    "two rows without batch axis": lambda lib, m, cache, utils: cache.remove_batch_dim(),
    "stack_activation": lambda lib, m, cache, utils: cache.stack_activation("nope"),
    "logit_attrs": lambda lib, m, cache, utils: cache.logit_attrs(
        torch.randn(3, 2, 9, 32), torch.tensor([1, 2, 3])
    ),
    "accumulated_resid": lambda lib, m, cache, utils: cache.accumulated_resid(layer=99),
    "d_model and d_head": lambda lib, m, cache, utils: small(lib, d_model=10, d_head=3),
    "no fields": lambda lib, m, cache, utils: lib.HookedTransformerConfig(n_layers=1),
    "an unknown field": lambda lib, m, cache, utils: lib.HookedTransformerConfig.from_dict(
        {"n_layers": 1, "zzz": 3}
    ),
    "no vocabulary": lambda lib, m, cache, utils: small(lib, d_vocab=-1),
    "an unknown norm": lambda lib, m, cache, utils: small(lib, normalization_type="x"),
    "an unknown activation": lambda lib, m, cache, utils: small(lib, act_fn="x"),
    "local attention without window": lambda lib, m, cache, utils: small(lib, use_local_attn=True),
    "an unknown kind of attention": lambda lib, m, cache, utils: small(
        lib, use_local_attn=True, window_size=2, attn_types=["x"]
    ),
    "experts": lambda lib, m, cache, utils: small(lib, num_experts=3),
    "unknown positions": lambda lib, m, cache, utils: small(lib, positional_embedding_type="x")(
        torch.tensor([[1, 2]])
    ),
    "mlp_in without MLPs": lambda lib, m, cache, utils: small(
        lib, attn_only=True
    ).set_use_hook_mlp_in(True),
    "an unknown model": lambda lib, m, cache, utils: lib.HookedTransformer.from_pretrained("zzz"),
    "generate a text": lambda lib, m, cache, utils: m.generate("abc", verbose=False),
    "generate without EOS": lambda lib, m, cache, utils: m.generate(tokens(), verbose=False),
    "top_k": lambda lib, m, cache, utils: m.generate(tokens(), top_k=-1, **GREEDY),
    "top_p": lambda lib, m, cache, utils: m.generate(tokens(), top_p=2.0, **GREEDY),
    "return_type": lambda lib, m, cache, utils: m.generate(tokens(), return_type="x", **GREEDY),
    "an inner dimension": lambda lib, m, cache, utils: factored(lib, 5),
    "leading axes": lambda lib, m, cache, utils: lib.FactoredMatrix(
        torch.randn(2, 3, 2), torch.randn(3, 2, 4)
    ),
    "FactoredMatrix @": lambda lib, m, cache, utils: factored(lib) @ torch.randn(3, 3),
    "@ FactoredMatrix": lambda lib, m, cache, utils: torch.randn(5, 5) @ factored(lib),
    "eigenvalues": lambda lib, m, cache, utils: factored(lib).eigenvalues,
    "too many indices": lambda lib, m, cache, utils: factored(lib)[1, 2, 3, 4],
    "composition_scores": lambda lib, m, cache, utils: utils.composition_scores(
        factored(lib), factored(lib)
    ),
    "all_composition_scores": lambda lib, m, cache, utils: m.all_composition_scores("x"),
    "sample_logits": lambda lib, m, cache, utils: utils.sample_logits(
        torch.randn(2, 5), freq_penalty=1.0
    ),
    "to_numpy": lambda lib, m, cache, utils: utils.to_numpy(object()),
    "Slice": lambda lib, m, cache, utils: utils.Slice((1, 2, 3, 4)),
    "detect_head": lambda lib, m, cache, utils: lib.head_detector.detect_head(m, "a b", "zzz"),
    "a metric of several numbers": lambda lib, m, cache, utils: (
        lib.patching.get_act_patch_resid_pre(m, tokens(), cache, lambda logits: logits)
    ),
    "a causal mask": lambda lib, m, cache, utils: m.blocks[0].attn.apply_causal_mask(
        torch.zeros(1, 1, 2, 5), 0
    ),
    "a missing attribute": lambda lib, m, cache, utils: m.nope,
}
OF_PYTHON = (
    *("no fields", "a missing attribute", "ids that are no integers", "Slice"),
    *("a backward pass of logits", "logit_attrs"),
)
"""Calls that Python or PyTorch refuses."""


@pytest.fixture(scope="module")
def both():
    """Each library with a model, a cache of its activations and its functions."""
    lens = pytest.importorskip("transformer_lens")
    ours, theirs = build("gpt2", torch.float32)
    libraries = (
        (interp.compat, ours, interp.compat.utils),
        (
            lens,
            theirs,
            import_module("transformer_lens.utils"),
        ),
    )
    return [
        (library, model, model.run_with_cache(tokens())[1], utils)
        for library, model, utils in libraries
    ]


def error_of(call, arguments):
    try:
        call(*arguments)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("name", CALLS)
def test_an_error_is_of_the_class_of_theirs(both, name, monkeypatch, capsys):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    ours, theirs = (error_of(CALLS[name], arguments) for arguments in both)
    assert theirs is not None
    assert isinstance(ours, type(theirs)), (ours, theirs)
    assert isinstance(ours, InterpError) or name in OF_PYTHON
