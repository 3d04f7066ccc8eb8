"""A hook at any place, forward or backward, has the effect that it has in TransformerLens."""

import pytest
import torch
from architectures import in_turn

from tests.compat.shapes import SHAPES, build, close, tokens

pytestmark = pytest.mark.filterwarnings("ignore")
FLAGS = {"plain": (), "flags": ("use_attn_result", "use_split_qkv_input", "use_hook_mlp_in")}
CASES = in_turn(SHAPES, [*FLAGS], (), kinds_a_name=1)


def in_place(x, hook):
    x.mul_(0.9).add_(0.05)


def returned(x, hook):
    return 0.9 * x + 0.05 * x.flip(0)


def halved(grad, hook):
    return 0.5 * grad


@pytest.fixture
def pair(name, flags):
    made = build(name)
    for model in made:
        for flag in FLAGS[flags]:
            setattr(model.cfg, flag, True)
    return made


@pytest.mark.parametrize(("name", "flags"), CASES)
@pytest.mark.parametrize("hook", [in_place, returned])
def test_forward_hooks(pair, hook):
    plain = pair[0](tokens())
    places = list(pair[1].run_with_cache(tokens())[1])
    assert places
    for place in places:
        if hook is returned and place.endswith("attn_scores"):
            continue  # 0.05 of −∞ from another row
        with torch.no_grad():
            logits, expected = (
                model.run_with_hooks(tokens(), fwd_hooks=[(place, hook)]) for model in pair
            )
        close(logits, expected)
        assert not torch.equal(logits, plain), place


@pytest.mark.parametrize(("name", "flags"), CASES)
def test_backward_hooks(pair):
    for place in list(pair[1].run_with_cache(tokens())[1]):
        for model in pair:
            model.zero_grad()
            with model.hooks(bwd_hooks=[(place, halved)]):
                model(tokens(), return_type="loss").backward()
        parameters = dict(pair[0].named_parameters())
        for key, parameter in pair[1].named_parameters():
            if parameter.grad is not None:
                close(parameters[key].grad, parameter.grad)
