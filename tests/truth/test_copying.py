"""Heads that repeat tokens copy: by the eigenvalues of their circuits, not by their first rank."""

import pytest
import torch

import interp
from analyses import head_roles, ov
from interp.zoo.access import trained_tokens

LAYER = {"python-2l": 1, "python-4l": 3}
"""Where induction heads are."""


@pytest.fixture(scope="module", params=LAYER)
def head_circuits(request):
    """Of each head of the layer: whether it is an induction head, and its OV circuit."""
    name = request.param
    model, layer = interp.load(name), LAYER[name]
    roles, tokens = head_roles(model, rows=8).roles(), torch.tensor(trained_tokens(model))
    circuits = [ov(model, layer, head, tokens, top=1) for head in range(model.n_heads)]
    return [("induction" in roles[circuit.name], circuit) for circuit in circuits]


@pytest.mark.slow
def test_induction_heads_copy(head_circuits):
    for is_induction, circuit in head_circuits:
        if is_induction:
            assert circuit.copying > circuit.copying_control.max() + 0.1


def test_permuted_outputs_copy_nothing(head_circuits):
    assert max(abs(float(circuit.copying_control.mean())) for _, circuit in head_circuits) < 0.15


def test_few_tokens_rank_themselves_first(head_circuits):
    """At most 3 % of them, also of heads that copy."""
    for _, circuit in head_circuits:
        first = circuit.promoted.top[:, 0] == circuit.promoted.tokens
        assert first.double().mean() <= 0.03
