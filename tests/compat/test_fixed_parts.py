"""What would have no effect on a forward is refused: other parts, and hooks of PyTorch on parts."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from interp import InterpError
from tests.compat.shapes import SHAPES, built, tokens


def replace(model, name, part):
    owner, _, last = name.rpartition(".")
    setattr(model.get_submodule(owner), last, part)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("blocks.0.mlp", nn.Identity()),
        ("blocks.1.attn.hook_z", nn.Identity()),
        ("ln_final", nn.LayerNorm(32)),
        ("blocks", nn.ModuleList()),
        ("blocks.0.extra", nn.Identity()),
    ],
)
def test_another_part_is_refused_by_its_name(name, part):
    model = built("gpt2")
    replace(model, name, part)
    with pytest.raises(InterpError, match=f"^{name} was replaced"):
        model(tokens())
    with pytest.raises(InterpError, match="was replaced"):
        model.run_with_cache(tokens())


def test_a_block_less_is_refused():
    model = built("gpt2")
    del model.blocks[1]
    with pytest.raises(InterpError, match=r"blocks\.1 was replaced by nothing"):
        model(tokens())


@pytest.mark.parametrize("name", ["blocks.0", "blocks.1.attn", "embed", "hook_embed"])
@pytest.mark.parametrize("how", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_of_pytorch_on_parts_are_refused(name, how):
    model = built("gpt2")
    handle = getattr(model.get_submodule(name), how)(lambda *given: None)
    with pytest.raises(InterpError, match=f"^{name} has a hook of PyTorch"):
        model(tokens())
    handle.remove()
    model(tokens())


def test_hooks_of_pytorch_on_the_model_itself_are_called():
    model, seen = built("gpt2"), []
    model.register_forward_hook(lambda module, given, logits: seen.append(logits))
    assert model(tokens()) is seen[0]


@pytest.mark.parametrize("name", SHAPES)
def test_what_has_an_effect_is_no_replacement(name):
    model = built(name)
    plain = model(tokens())
    assert torch.equal(deepcopy(model)(tokens()), plain)
    model.add_hook("hook_embed", lambda x, hook: 2 * x)
    with torch.no_grad():
        model.blocks[0].attn.W_O.zero_()
    assert not torch.allclose(model(tokens()), plain)
    model.to(torch.float32)
    model(tokens())
