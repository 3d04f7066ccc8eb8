"""What is sent to a worker is what it gets."""

import threading

import pytest
import torch
from architectures import assert_identical, build

from interp.errors import InvalidInput
from interp.executors.transfer import Snapshot, dumps, load_snapshot, loads, mapped
from interp.model import weight_hash


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12).view(3, 4).T[1:],
        torch.tensor(2.5, dtype=torch.bfloat16),
        torch.tensor([True, False]),
        torch.empty(0, 3),
        torch.randn(2, 3, dtype=torch.float64).requires_grad_(),
    ],
)
def test_tensors_arrive_with_their_bits(tensor):
    arrived = loads(dumps({"x": [tensor]}))["x"][0]
    assert (arrived.dtype, arrived.shape) == (tensor.dtype, tensor.shape)
    assert_identical(arrived, tensor.detach())


def test_a_view_is_sent_without_the_rest():
    assert len(dumps(torch.zeros(10**6)[:3])) < 1000


def test_a_snapshot_is_the_model_with_its_ties():
    model = build("gpt2")
    snapshot = Snapshot.of(model)
    weights = sum(p.numel() * p.itemsize for p in {*model.parameters()})
    assert weights <= snapshot.nbytes < weights + 64 * len(list(model.parameters())) + 10**4
    data = mapped(snapshot.file.fileno(), snapshot.nbytes)
    arrived = load_snapshot(snapshot.skeleton, data, "cpu")
    assert weight_hash(arrived) == weight_hash(model)
    assert [name for name, _ in arrived.named_parameters()] == [
        name for name, _ in model.named_parameters()
    ]
    assert [p.requires_grad for p in arrived.parameters()] == [
        p.requires_grad for p in model.parameters()
    ]
    snapshot.close()


def test_a_worker_can_not_change_the_weights_of_another():
    snapshot = Snapshot.of(build("gpt2"))
    copies = [
        load_snapshot(snapshot.skeleton, mapped(snapshot.file.fileno(), snapshot.nbytes), "cpu")
        for _ in range(2)
    ]
    with torch.no_grad():
        next(copies[0].parameters()).zero_()
    assert bool(next(copies[1].parameters()).any())
    snapshot.close()


def test_what_has_no_pickle_is_refused():
    with pytest.raises(InvalidInput, match="can't be sent to workers"):
        dumps({"lock": threading.Lock()})
