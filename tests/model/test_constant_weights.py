"""Models that a server shares with nobody: their weights are read once, until a version changes."""

import copy

import pytest
import torch

from analyses.methods.finite import check_finite_weights
from interp.errors import InvalidInput
from interp.loading import load
from interp.model import assume_constant_weights, hashing, weight_hash


@pytest.fixture
def model():
    return copy.deepcopy(load("induction-by-hand"))


def test_constant_weights_are_summed_once(model, monkeypatch):
    summed = []
    monkeypatch.setattr(
        hashing, "weight_sums", lambda weights: summed.append(1) or (0.0,) * len(weights)
    )
    assume_constant_weights(model)
    for _ in range(3):
        weight_hash(model)
        check_finite_weights(model)
    assert len(summed) == 1


def test_a_changed_weight_is_noticed_though_weights_are_assumed_constant(model):
    assume_constant_weights(model)
    before = weight_hash(model)
    with torch.no_grad():
        model.blocks[0].attn.W_O.mul_(2)
    assert weight_hash(model) != before
    with torch.no_grad():
        model.blocks[0].attn.W_O.fill_(torch.nan)
    with pytest.raises(InvalidInput, match="is NaN or infinite"):
        check_finite_weights(model)


def test_only_a_write_through_data_is_noticed_by_sums_alone(model):
    """The converse: why weights are summed unless they are assumed to be constant."""
    before = weight_hash(model)
    model.blocks[0].attn.W_O.data.mul_(2)
    changed = weight_hash(model)
    assert changed != before
    assume_constant_weights(model)
    model.blocks[0].attn.W_O.data.mul_(2)
    assert weight_hash(model) == changed
