"""Linear probes: can the class of a row be predicted from its activations by a linear map?

A probe scores each class and predicts the class with the largest score. Ridge regression fits the
indicators of the classes (a least-squares classifier), logistic regression their probabilities.
"""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from analyses.methods.ridge import LinearMap, Ridge
from analyses.probe.logistic import logistic

Targets = Int[Tensor, "labelling row"]
"""The classes of the same rows in several labellings, from 0 to n − 1."""
Fit = Callable[[Tensor, Targets, int], list[LinearMap]]


def _ridge(x: Tensor, targets: Targets, n: int) -> list[LinearMap]:
    fits = Ridge(x)
    return [fits.fit(one_hot(classes, n).double()) for classes in targets]


CLASSIFIERS: Mapping[str, Fit] = {"ridge": _ridge, "logistic": logistic}
"""The fit of each kind of probe, by name."""


def held_out_correct(
    fit: Fit,
    x: Float[Tensor, "row dim"],
    targets: Targets,
    n: int,
    folds: Int[Tensor, " row"],
) -> Bool[Tensor, "labelling row"]:
    """Whether the class of each row is predicted by a probe fitted to the other folds.

    Args:
        fit: one of ``CLASSIFIERS``.
        x: the rows.
        targets: the classes of the rows.
        n: number of classes.
        folds: the fold of each row.
    """
    correct = torch.zeros_like(targets, dtype=torch.bool)
    for fold in folds.unique():
        test = folds == fold
        probes = fit(x[~test], targets[:, ~test], n)
        for row, probe in enumerate(probes):
            correct[row, test] = probe(x[test].double()).argmax(-1) == targets[row, test]
    return correct
