"""Probes read what is linear; after erasure there is nothing linear to read."""

import pytest
import torch
from architectures import assert_close
from torch.nn.functional import cross_entropy, one_hot

from analyses.erase.erasure import Erasure
from analyses.methods.ridge import Ridge, random_folds
from analyses.probe.classifiers import CLASSIFIERS, held_out_correct
from analyses.probe.logistic import GRADIENT, PENALTY, logistic


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def labelled(n: int, d: int, classes: int, distance: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows around the centre of their class."""
    labels = torch.arange(n) % classes
    return normal(n, d) + distance * normal(classes, d, seed=1)[labels], labels


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_planted_labels_are_read_and_shuffled_ones_are_not(kind):
    x, labels = labelled(120, 10, 3, 8.0)
    order = torch.randperm(120, generator=torch.Generator().manual_seed(2))
    folds = random_folds(120, 5, torch.Generator().manual_seed(3))
    targets = torch.stack([labels, labels[order]])
    accuracy = held_out_correct(CLASSIFIERS[kind], x, targets, 3, folds).double().mean(-1)
    assert accuracy[0] == 1
    assert accuracy[1] < 0.5


def test_logistic_regression_is_at_its_minimum():
    """The gradient vanishes: E[x (p − z)] + penalty W = 0, E[p − z] = 0."""
    x, labels = labelled(60, 5, 3, 1.0)
    (fit,) = logistic(7 * x + 3, labels[None], 3)
    scores = fit(7 * x + 3)
    residual = scores.softmax(-1) - one_hot(labels, 3)
    scale = (7 * (x - x.mean(0))).square().mean().sqrt()
    inputs = 7 * (x - x.mean(0)) / scale
    gradient = inputs.mT @ residual / 60 + PENALTY * fit.W * scale
    assert gradient.abs().max() <= GRADIENT
    assert residual.mean(0).abs().max() <= GRADIENT
    assert (inputs.mT @ residual / 60).abs().max() > 1e-3  # of the data alone


def test_labellings_that_are_fitted_together_have_the_fits_that_they_have_alone():
    x, labels = labelled(40, 5, 3, 1.0)
    several = torch.stack([labels, labels.flip(0), (labels + 1) % 3])
    for fit, labelling in zip(logistic(x, several, 3), several, strict=True):
        (alone,) = logistic(x, labelling[None], 3)
        assert_close(fit.W, alone.W, 2 * GRADIENT / PENALTY)


@pytest.mark.parametrize("n", [80, 8])
def test_after_erasure_no_linear_probe_beats_the_constant(n):
    """Cov(r(x), z) = 0, so that the constant is the optimum of any convex loss; and E r(x) = E x.

    Of few rows, x has not full rank; of 8 in 12 dimensions, all of z is read.
    """
    x, labels = labelled(n, 12, 3, 3.0)
    z = one_hot(labels, 3).double()
    erased = Erasure.of(x, z)(x)
    covariance = (erased - erased.mean(0)).mT @ (z - z.mean(0)) / n
    assert covariance.abs().max() < 1e-12
    assert_close(erased.mean(0), x.mean(0))
    (probe,) = logistic(erased, labels[None], 3, penalty=1e-6)
    constant = cross_entropy(z.mean(0).log().expand(n, 3), labels)
    assert_close(cross_entropy(probe(erased), labels), constant, 1e-9)
    (probe,) = logistic(x, labels[None], 3, penalty=1e-6)
    assert cross_entropy(probe(x), labels) < 0.1 * constant
    centred = erased - erased.mean(0)
    W = torch.linalg.pinv(centred, rtol=1e-9) @ (z - z.mean(0))
    assert (centred @ W).abs().max() < 1e-9


def test_erasure_changes_least_and_nothing_twice():
    """r(r(x)) = r(x); removing the differences of class means orthogonally changes more."""
    labels = torch.arange(200) % 2
    sizes = torch.tensor([9.0, 3.0, 1.0, 1.0, 0.3, 0.1]).double()
    x = normal(200, 6) * sizes + normal(2, 6, seed=1)[labels]
    z = one_hot(labels, 2).double()
    erasure = Erasure.of(x, z)
    erased = erasure(x)
    assert_close(erasure(erased), erased)
    assert erasure.left.shape == (6, 1)  # two classes differ in one direction
    direction = x[labels == 0].mean(0) - x[labels == 1].mean(0)
    direction = direction / direction.norm()
    orthogonal = x - ((x - x.mean(0)) @ direction)[:, None] * direction
    covariance = (orthogonal - orthogonal.mean(0)).mT @ (z - z.mean(0))
    assert covariance.abs().max() < 1e-9
    assert (erased - x).square().sum() < 0.9 * (orthogonal - x).square().sum()


def test_without_the_directions_of_one_probe_another_reads_what_goes_along_with_them():
    """A label in every coordinate, at other sizes: LEACE leaves nothing of it, one probe much."""
    labels = torch.arange(300) % 3
    x = normal(300, 6) * torch.tensor([3.0, 2.0, 1.0, 1.0, 0.5, 0.5]).double()
    x = x + 2 * normal(3, 6, seed=1)[labels]
    z = one_hot(labels, 3).double()
    erasure = Erasure.of_probe(x, z)
    erased = erasure(x)
    assert erasure.left.shape == (6, 2)  # three classes differ in two directions
    weights = Ridge(x).fit(z).W
    assert ((erased - x.mean(0)) @ weights).abs().max() < 1e-12
    assert_close(erasure(erased), erased)
    constant = cross_entropy(z.mean(0).log().expand(300, 3), labels)
    loss: list[float] = []
    for activations in (x, erased, Erasure.of(x, z)(x)):
        (probe,) = logistic(activations, labels[None], 3, penalty=1e-6)
        loss.append(float(cross_entropy(probe(activations), labels) / constant))
    assert 2 * loss[0] < loss[1] < 0.95
    assert loss[2] == pytest.approx(1)
    nothing = torch.ones(8, 3).double()
    assert_close(Erasure.of_probe(nothing, z[:8])(nothing), nothing)


def test_directions_of_rounding_errors_are_no_part_of_the_rows():
    """Through them, any labels could be read of few rows."""
    x, labels = normal(8, 12), torch.arange(8) % 2
    exact = torch.cat([x[:, :1], torch.zeros(8, 11)], 1).double()
    noisy = exact + 1e-8 * x
    z = one_hot(labels, 2).double()
    assert_close(Erasure.of(noisy, z, 1e-5)(noisy), Erasure.of(exact, z)(exact), 1e-6)
    assert (Erasure.of(noisy, z)(noisy) - Erasure.of(exact, z)(exact)).abs().max() > 1e-2
    same = torch.ones(8, 3).double()
    assert_close(Erasure.of(same, z)(same), same)


def test_what_is_not_in_x_is_left_in_peace():
    x = normal(50, 4)
    z = normal(50, 1, seed=1)
    z = (
        z
        - torch.cat([x, torch.ones(50, 1)], 1).double()
        @ torch.linalg.lstsq(torch.cat([x, torch.ones(50, 1)], 1).double(), z).solution
    )
    assert_close(Erasure.of(x, z)(x), x)
    assert Ridge(x).fit(z).W.abs().max() < 1e-6
