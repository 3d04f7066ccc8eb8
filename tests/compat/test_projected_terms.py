"""Terms of a stream that are projected before they are formed are the projections of the terms."""

import pytest
from torch.testing import assert_close

from tests.compat.shapes import SHAPES, built, tokens

WITH_MLPS = [name for name in SHAPES if "attn_only" not in SHAPES[name]]
SETTINGS = [
    {},
    {"apply_ln": True},
    {"layer": 1, "apply_ln": True, "pos_slice": (1, 4)},
    {"layer": 1, "mlp_input": True, "apply_ln": True},
    {"expand_neurons": False, "apply_ln": True, "pos_slice": -1},
]


@pytest.mark.parametrize("name", WITH_MLPS)
def test_projected_terms_are_projections_of_terms(name):
    model = built(name)
    _, cache = model.run_with_cache(tokens())
    for setting in SETTINGS:
        terms, labels = cache.get_full_resid_decomposition(return_labels=True, **setting)
        for W in (model.W_U[:, :3].detach(), model.W_U[:, 1].detach()):
            projected, projected_labels = cache.get_full_resid_decomposition(
                return_labels=True, project_output_onto=W, **setting
            )
            assert_close(projected, terms @ W, atol=1e-10, rtol=1e-10)
            assert projected_labels == labels


@pytest.mark.parametrize("name", WITH_MLPS)
@pytest.mark.parametrize("apply_ln", [False, True])
def test_projected_neurons_are_projections_of_neurons(name, apply_ln):
    model = built(name)
    _, cache = model.run_with_cache(tokens())
    options = {"layer": -1, "neuron_slice": (0, 5), "incl_remainder": True, "apply_ln": apply_ln}
    W = model.W_U[:, :3].detach()
    neurons = cache.stack_neuron_results(**options)
    projected = cache.stack_neuron_results(**options, project_output_onto=W)
    assert_close(projected, neurons @ W, atol=1e-10, rtol=1e-10)
    assert_close(
        cache.stack_neuron_results(**options, project_output_onto=W[:, 0]),
        projected[..., 0],
        atol=1e-12,
        rtol=0,
    )
