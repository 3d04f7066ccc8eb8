"""Analyses of models whose layers lie on several devices have the bits of those of one device."""

import copy
from inspect import signature
from typing import Any

import pandas as pd
import pytest
import torch
from architectures import covering
from declared import Declared, declarations
from permuted import tables_of
from placements import on_cpu, spread
from pretended_devices import pretended_devices

import interp
from interp.errors import InvalidInput

OF_MODELS = {
    name: declared
    for name, declared in declarations().items()
    if any(isinstance(value, interp.Transformer) for value in declared.call.arguments)
}
REFUSED = {"check_dictionaries", "permutation_covariance"}
"""They read a view with dictionaries; change a copy of the model."""
FAST = {
    *("attribute_nodes", "attribution_graph", "composition", "direct_logit_attribution"),
    *("explain_scores", "logit_lens", "patch_activations", "top_texts"),
}
"""Of heads, neurons and weights; in one forward, with gradients, and swept."""


def tables(declared: Declared, placed: Any) -> dict[str, pd.DataFrame]:
    """The tables of an analysis whose models are what ``placed`` makes of them.

    A weight that moves needs no gradient, and PyTorch multiplies a weight that needs one in another
    order; so none does.
    """
    arguments = signature(declared.analysis).bind_partial(*declared.call.arguments).arguments
    for name, value in arguments.items():
        if isinstance(value, interp.Transformer):
            arguments[name] = placed(value).requires_grad_(requires_grad=False)
    torch.manual_seed(0)
    return tables_of(declared.result_of_call(**arguments))


def assert_same(tables: dict[str, pd.DataFrame], expected: dict[str, pd.DataFrame]) -> None:
    assert list(tables) == list(expected)
    for name, table in expected.items():
        pd.testing.assert_frame_equal(tables[name], table, check_exact=True)


NAMES = [name for name in OF_MODELS if name not in REFUSED]


@pytest.mark.parametrize("name", covering(NAMES, FAST))
def test_an_analysis_mixes_no_devices_and_has_the_same_bits(name):
    expected = tables(OF_MODELS[name], copy.deepcopy)
    with pretended_devices() as devices:
        placed = tables(OF_MODELS[name], spread)
        assert len(devices.moved) > 2, "no layer was read or run"
    assert_same(placed, expected)


@pytest.mark.parametrize(
    "name", covering(NAMES, (), nightly=[name for name in NAMES if name not in FAST])
)
def test_an_analysis_of_layers_placed_on_the_cpu_has_the_same_bits(name):
    expected, placed = (tables(OF_MODELS[name], made) for made in (copy.deepcopy, on_cpu))
    assert_same(placed, expected)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_changes_a_copy_or_has_dictionaries_is_refused(name):
    with pretended_devices(), pytest.raises(InvalidInput):
        tables(OF_MODELS[name], spread)
