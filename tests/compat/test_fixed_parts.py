"""What would have no effect on a forward is refused: fewer parts, and PyTorch's hooks on parts.

Parts that are replaced are in test_hooked_transformer.py.
"""

from copy import deepcopy

import pytest
import torch
from torch import nn

from interp import InterpError
from tests.compat.shapes import SHAPES, built, tokens


def test_blocks_are_neither_deleted_nor_added():
    model = built("gpt2")
    with pytest.raises(InterpError, match="stop_at_layer"):
        del model.blocks[1]
    with pytest.raises(InterpError, match="can't be deleted"):
        del model.ln_final
    with pytest.raises(InterpError, match="more layers"):
        model.blocks.append(nn.Identity())
    assert len(model.blocks) == model.cfg.n_layers


@pytest.mark.parametrize("name", ["blocks.0", "blocks.1.attn", "blocks.0.mlp", "embed", "ln_final"])
@pytest.mark.parametrize("how", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_of_pytorch_on_parts_are_refused(name, how):
    part = built("gpt2").get_submodule(name)
    with pytest.raises(InterpError, match="add_hook"):
        getattr(part, how)(lambda *arguments: None)


def test_hooks_of_pytorch_on_the_model_itself_are_called():
    model, seen = built("gpt2"), []
    model.register_forward_hook(lambda module, inputs, logits: seen.append(logits))
    model.register_forward_pre_hook(lambda module, inputs: seen.append(None))
    assert model(tokens()) is seen[1]
    assert seen[0] is None


@pytest.mark.parametrize("name", SHAPES)
def test_what_has_an_effect_is_accepted(name):
    model = built(name)
    plain = model(tokens())
    assert torch.equal(deepcopy(model)(tokens()), plain)
    model.add_hook("hook_embed", lambda x, hook: 2 * x)
    with torch.no_grad():
        model.blocks[0].attn.W_O.zero_()
    assert not torch.allclose(model(tokens()), plain)
