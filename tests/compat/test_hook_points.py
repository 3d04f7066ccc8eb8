"""Hook points in one's own modules, without a Transformer."""

import pytest
import torch
from torch import nn

from interp import InterpError
from interp.compat import HookedRootModule, HookPoint


class Small(HookedRootModule):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.hook_mid, self.hook_out = HookPoint(), HookPoint()
        self.setup()

    def forward(self, x):
        return self.hook_out(self.hook_mid(self.linear(x)) * 2)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Small()


X = torch.ones(2, 3)


def test_hooks_run_in_the_order_of_adding_and_prepended_ones_first(model):
    order = []
    for label, prepend in (("a", False), ("b", False), ("c", True)):
        model.add_hook("hook_mid", lambda x, hook, n=label: order.append(n), prepend=prepend)
    model(X)
    assert order == ["c", "a", "b"]


def test_a_return_replaces_and_none_keeps(model):
    plain = model(X)
    assert torch.equal(
        model.run_with_hooks(X, fwd_hooks=[("hook_mid", lambda x, hook: None)]), plain
    )
    zero = model.run_with_hooks(X, fwd_hooks=[("hook_mid", lambda x, hook: 0 * x)])
    assert torch.equal(zero, torch.zeros_like(plain))
    assert torch.equal(model(X), plain)


def test_hooks_stay_until_reset_and_permanent_ones_longer(model):
    plain = model(X)
    model.add_hook("hook_mid", lambda x, hook: x + 1)
    model.add_perma_hook("hook_mid", lambda x, hook: x + 10)
    model.run_with_hooks(X, fwd_hooks=[("hook_out", lambda x, hook: None)])
    torch.testing.assert_close(model(X), plain + 22)
    model.reset_hooks()
    torch.testing.assert_close(model(X), plain + 20)
    model.reset_hooks(including_permanent=True)
    assert torch.equal(model(X), plain)


def test_a_context_removes_its_own_level_only(model):
    with model.hooks(fwd_hooks=[("hook_mid", lambda x, hook: x + 1)]):
        with model.hooks(fwd_hooks=[("hook_mid", lambda x, hook: x + 2)]):
            assert len(model.hook_mid.fwd_hooks) == 2
        assert [handle.context_level for handle in model.hook_mid.fwd_hooks] == [1]
    assert not model.list_hooks()
    assert model.context_level == 0


def test_hooks_of_a_context_go_when_it_raises(model):
    def fails(x, hook):
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        model.run_with_hooks(X, fwd_hooks=[("hook_mid", fails)])
    assert not model.list_hooks()


def test_backward_hooks_see_and_replace_gradients(model):
    seen = []
    with model.hooks(bwd_hooks=[("hook_mid", lambda grad, hook: seen.append(grad.clone()))]):
        model(X).sum().backward()
    assert torch.equal(seen[0], torch.full((2, 3), 2.0))
    model.zero_grad()
    with model.hooks(bwd_hooks=[("hook_mid", lambda grad, hook: 0 * grad)]):
        model(X).sum().backward()
    assert not model.linear.weight.grad.any()


@pytest.mark.parametrize(
    "names_filter", ["hook_mid", ["hook_mid"], lambda name: name == "hook_mid"]
)
def test_filters_of_a_cache(model, names_filter):
    _, cache = model.run_with_cache(X, names_filter=names_filter)
    assert list(cache) == ["hook_mid"]
    torch.testing.assert_close(cache["hook_mid"], model.linear(X))


def test_a_filter_may_match_nothing_but_a_name_must_exist(model):
    assert model.run_with_cache(X, names_filter=lambda name: False)[1] == {}
    with pytest.raises(InterpError, match="hook_dict"):
        model.add_hook("hook_mud", lambda x, hook: None)


def test_names_and_layers(model):
    assert [point.name for point in model.hook_points()] == ["hook_mid", "hook_out"]
    point = HookPoint()
    point.name = "blocks.3.attn.hook_q"
    assert point.layer() == 3
    with pytest.raises(InterpError, match="layer"):
        model.hook_mid.layer()
