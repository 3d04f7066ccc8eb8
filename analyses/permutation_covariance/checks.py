"""Checks of all symmetries of a model on random tokens in float64, with changes that break each."""

import copy
from dataclasses import dataclass

import torch

from analyses.methods.symmetries import random_inputs
from analyses.permutation_covariance.check import Case, SymmetryCheck
from analyses.permutation_covariance.part_checks import (
    check_heads,
    check_neurons,
    check_scores,
    check_values,
    check_vocabulary,
)
from analyses.permutation_covariance.token_checks import check_batch, check_tokens
from interp.model import Batch, Network, as_network

SYMMETRIES = (
    check_tokens,
    check_heads,
    check_neurons,
    check_batch,
    check_vocabulary,
    check_scores,
    check_values,
)


@dataclass(frozen=True, eq=False)
class SymmetryChecks:
    """All checks of a model.

    Attributes:
        checks: the checks of every symmetry at every part.
        notes: symmetries that were not checked, or only in part, and why.
        batches: the random tokens, one batch per stack.
    """

    checks: tuple[SymmetryCheck, ...]
    notes: tuple[str, ...]
    batches: tuple[Batch, ...]


def check_symmetries(model: Network, seed: int = 0) -> SymmetryChecks:
    """Check the symmetries of a model.

    Args:
        model: any model; it is copied to float64 and not changed.
        seed: seed of the tokens, permutations and bases.

    Raises:
        InvalidInput: ``model`` is not a model, or its weights are parametrized.
    """
    exact = copy.deepcopy(as_network(model)).double().eval()
    batches = exact.check(*random_inputs(exact, seed))
    case = Case(exact, batches, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        checks = tuple(check for symmetry in SYMMETRIES for check in symmetry(case))
    return SymmetryChecks(checks, tuple(case.notes), tuple(batches))
