"""The tool of the tests of placed models: pretended devices mix as little as real ones."""

import pytest
import torch
from pretended_devices import MixedDevices, pretended_devices
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

FIRST, SECOND = "cuda:0", "cuda:1"


@pytest.mark.parametrize(
    "mix",
    [
        lambda x, y: x + y,
        lambda x, y: x @ y.T,
        lambda x, y: torch.cat([x, y]),
        F.linear,
        torch.equal,
        lambda x, y: torch.einsum("a b, a b -> a", x, y),
        lambda x, y: x[y.long().abs() % 2],
        lambda x, y: x.add_(y),
        lambda x, y: torch.where(x > 0, x, y),
        lambda x, y: x[torch.tensor([0, 1], device=FIRST)].index_select(0, y[0].long() * 0),
    ],
)
def test_an_operation_on_two_devices_raises(mix):
    with pretended_devices():
        x, y = torch.randn(2, 2, device=FIRST), torch.randn(2, 2, device=SECOND)
        mix(x, x.clone())
        with pytest.raises(MixedDevices):
            mix(x, y)


def test_results_are_where_their_arguments_are():
    with pretended_devices():
        x = torch.randn(2, 3, device=SECOND)
        views = [x[0], x.T, x.detach(), x.softmax(-1), x.new_zeros(2), torch.zeros_like(x)]
        parts = [*x.unbind(), *x.max(-1), nn.Parameter(x), nn.Parameter(x).data, x.to(torch.half)]
        assert {str(y.device) for y in views + parts} == {SECOND}
        assert torch.zeros(2).device.type == "cpu"
        assert torch.zeros(2, device=FIRST).to(x).device == x.device


def test_numbers_and_indices_of_the_cpu_are_allowed():
    with pretended_devices():
        x = torch.randn(3, device=FIRST)
        assert (x * torch.tensor(2.0)).device == x[torch.tensor([0, 2])].device == x.device


def test_copies_between_devices_are_counted():
    with pretended_devices() as devices:
        x, y = torch.randn(2, 2, device=FIRST), torch.zeros(2, 2, device=SECOND)
        moved = x.to(SECOND)
        assert devices.moved == {(FIRST, SECOND): 16}
        assert x.to(FIRST) is x
        y[:] = x
        assert torch.equal(y, moved)
        assert devices.moved == {(FIRST, SECOND): 32}


def test_gradients_are_where_their_tensors_are():
    with pretended_devices():
        x = torch.randn(2, device=FIRST, requires_grad=True)
        y = (x.to(SECOND) * 2).sum()
        (gradient,) = torch.autograd.grad(y, x)
        assert (y.device, gradient.device) == (torch.device(SECOND), torch.device(FIRST))


def test_numpy_reads_the_cpu():
    with pretended_devices():
        x = torch.zeros(2, device=FIRST)
        with pytest.raises(TypeError):
            x.numpy()
        assert x.cpu().numpy().shape == (2,)
