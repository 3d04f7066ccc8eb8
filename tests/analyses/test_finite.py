"""No analysis reads NaN or infinity as a finding: weights and activations are checked first."""

import copy
import re

import pytest
import torch
from declared import Declared, declarations
from declared.small import CLEAN, MODEL

from analyses import steer
from analyses.methods.finite import check_finite_weights, naming_first_nan
from interp import InterpError, LowRank, Transformer
from interp.errors import InvalidInput, NotANumber

OF_A_MODEL = [
    declared
    for declared in declarations().values()
    if any(argument is MODEL for argument in declared.call.arguments)
]
PLACE = re.compile(r"""\("(scores|pattern|z|q|resid_post|post)", 0\)""")
"""A place of layer 0, with the name of its point."""


def with_value(value: float) -> Transformer:
    """The model with one other value, in W_O of head 1 of layer 0."""
    model = copy.deepcopy(MODEL)
    with torch.no_grad():
        model.blocks[0].attn.W_O[1, 2, 3] = value
    return model


def call_with(declared: Declared, model: Transformer) -> object:
    arguments = (model if argument is MODEL else argument for argument in declared.call.arguments)
    return declared.analysis(*arguments, **declared.call.settings)


def name_of(declared: Declared) -> str:
    return declared.name


@pytest.mark.parametrize("declared", OF_A_MODEL, ids=name_of)
def test_every_analysis_names_a_weight_that_is_not_finite(declared):
    for value in (torch.nan, torch.inf, -torch.inf):
        with pytest.raises(InvalidInput, match=r"blocks\.0\.attn\.weight_o .* at 1 of 144 indices"):
            call_with(declared, with_value(value))


@pytest.mark.parametrize("declared", OF_A_MODEL, ids=name_of)
def test_every_analysis_names_what_overflows(declared):
    """All weights are finite, and the scores of layer 0 are not; so a place there is named.

    An analysis of weights alone does not name a place.
    """
    model = copy.deepcopy(MODEL)
    with torch.no_grad():
        for weight in model.stacks[-1].blocks.parameters():
            weight.mul_(1e25)
    if not declared.call.overflows:
        call_with(declared, model)
        return
    with pytest.raises(InterpError, match=r"NaN|not finite") as refused:
        call_with(declared, model)
    assert not declared.call.runs or PLACE.search(str(refused.value))


def test_a_metric_that_is_nan_though_the_forward_is_not_is_refused_as_before():
    batches = MODEL.batches(CLEAN)
    with pytest.raises(NotANumber, match="from the metric"), naming_first_nan(MODEL, batches):
        raise NotANumber("NaN comes from the metric.")


def test_contrasting_prompts_on_which_the_stream_overflows_are_named():
    model = copy.deepcopy(MODEL)
    with torch.no_grad():
        for weight in model.stacks[-1].blocks.parameters():
            weight.mul_(1e15)  # queries and keys are finite, each of their products overflows
    with pytest.raises(InvalidInput, match=r'NaN on these prompts, first at \("scores", 0\)'):
        steer(model, CLEAN[:1], contrast=(CLEAN[:1], CLEAN[1:2]), layer=1)


def test_finite_weights_are_accepted_though_their_sum_overflows():
    model = copy.deepcopy(MODEL).double()
    check_finite_weights(model)
    with torch.no_grad():
        model.blocks[0].attn.W_O.fill_(1e308)
    check_finite_weights(model)


def test_a_low_rank_matrix_that_is_not_finite_has_no_spectrum():
    """LAPACK may end the process; a product overflows though its factors are finite."""
    finite = torch.ones(3, 2)
    for left in (finite * torch.nan, finite * torch.inf, finite * 3e38):
        matrix = LowRank(left, finite.mT * 3)
        for spectrum in (matrix.svd, matrix.eigenvalues, matrix.positive_fraction):
            with pytest.raises(InvalidInput, match="holds NaN or infinity, so it has no spectrum"):
                spectrum()
