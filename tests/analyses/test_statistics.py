"""Intervals contain the mean as often as they say, also of skewed data; few prompts have none."""

from math import sqrt

import pytest
import torch
from torch import Tensor

from analyses.statistics import (
    FEWEST,
    LEVEL,
    false_discovery_rates,
    interval,
    student_quantile,
    student_tail,
)
from benchmarks.coverage import draw

SIZES = (8, 12, 24, 50)


def false_share(values: Tensor) -> float:
    found = interval(values)
    assert torch.equal(found.p <= LEVEL, (found.low > 0) | (found.high < 0))
    return float((found.p <= LEVEL).double().mean())


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    "kind",
    [
        *("normal", "two-sided exponential", "exponential", "squared normal"),
        "lognormal, σ = ½",
    ],
)
def test_one_in_twenty_means_of_zero_seems_to_differ_from_zero(kind, n):
    """4 to 7 % where 5 % are said; the standard error of a share is 0.1 %."""
    assert 0.04 <= false_share(draw(kind, n)) <= 0.07


@pytest.mark.parametrize("n", SIZES)
def test_what_is_worse_is_no_worse_than_docs_say(n):
    """Extreme skewness (6.2) is not seen in a few values; without tails intervals are too wide."""
    assert 0.04 <= false_share(draw("lognormal, σ = 1", n)) <= {8: 0.095, 12: 0.085}.get(n, 0.075)
    assert 0.025 <= false_share(draw("uniform", n)) <= 0.05


def test_without_the_transformation_skewed_data_seem_to_differ_from_zero():
    """The converse: Student's t itself, twice as often as it says."""
    x = draw("exponential", 8)
    t = x.mean(-1) / x.std(-1) * sqrt(8)
    assert float((t.abs() > student_quantile(7)).double().mean()) > 0.09


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_few_prompts_have_no_interval(n):
    found = interval(torch.ones(2, 3, n))
    for own in (found.low, found.high, found.p):
        assert own.shape == (2, 3)
        assert bool(own.isnan().all())
    assert torch.equal(found.mean, torch.ones(2, 3).double())
    assert torch.equal(found.size, torch.ones(2, 3).double())
    assert bool(interval(torch.ones(2, 3, FEWEST)).p.isfinite().all())


@pytest.mark.parametrize("kind", ["normal", "exponential"])
@pytest.mark.parametrize("n", [5, 6, 24])
def test_an_interval_moves_with_its_data(kind, n):
    """Shifted, scaled, mirrored, reordered."""
    x = draw(kind, n, draws=50)
    found = interval(x)
    moved, mirrored = interval(3 * x + 7), interval(-x.flip(-1))
    for name in ("mean", "low", "high"):
        torch.testing.assert_close(getattr(moved, name), 3 * getattr(found, name) + 7)
    torch.testing.assert_close(mirrored.low, -found.high)
    torch.testing.assert_close(mirrored.high, -found.low)
    torch.testing.assert_close(mirrored.p, found.p)
    assert bool((found.low < found.mean).all() and (found.mean < found.high).all())


def test_a_skewed_end_is_further_away():
    """The values that are missing are those of the long tail."""
    found = interval(torch.tensor([0.0, 0.1, 0.1, 0.2, 0.2, 0.3, 0.4, 2.0]))
    assert found.high - found.mean > 1.3 * (found.mean - found.low)


def test_equal_values_leave_no_doubt_unless_they_are_zero():
    values = torch.tensor([[0.0] * 8, [0.25] * 8, [-0.25] * 8, [1e-9] * 8, [0.1] * 8])
    found = interval(values, noise=1e-6)
    assert found.p.tolist() == [1.0, 0.0, 0.0, 1.0, 0.0]
    assert torch.equal(found.low[:3], values[:3, 0].double())
    assert torch.equal(found.high[:3], values[:3, 0].double())
    assert bool((found.high - found.low < 1e-12).all())


def test_a_mean_within_the_noise_is_no_effect():
    x = 1e-3 + 1e-6 * draw("normal", 12, draws=50)
    assert bool((interval(x).p < 1e-6).all())
    assert bool((interval(x, noise=2e-3).p == 1).all())
    assert bool((interval(x, noise=1e-4).p < 1e-6).all())


def test_the_size_does_not_cancel():
    found = interval(torch.tensor([1.0, -1.0] * 4))
    assert (found.mean.item(), found.size.item(), found.p.item()) == (0.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(4, 2.77645), (5, 2.57058), (7, 2.36462), (30, 2.04227), (999, 1.96234)],
)
def test_quantiles_are_those_of_the_tables(freedom, quantile):
    assert student_quantile(freedom) == pytest.approx(quantile, abs=5e-6)


@pytest.mark.parametrize("freedom", [4, 7, 23])
def test_tails_are_integrals_of_the_density(freedom):
    """P(|T| ≥ t) = 2 ∫ c (1 + x²/ν)^(−(ν+1)/2) from t on, with x = √ν tan θ."""
    theta = torch.linspace(0, torch.pi / 2, 200_001, dtype=torch.float64)
    density = theta.cos().pow(freedom - 1)
    for t in (0.5, 2.0, 6.0):
        beyond = theta >= torch.tensor(t / sqrt(freedom)).atan()
        share = torch.trapezoid(density[beyond], theta[beyond]) / torch.trapezoid(density, theta)
        found = student_tail(torch.tensor(t, dtype=torch.float64), freedom)
        assert found.item() == pytest.approx(share.item(), rel=1e-3)


def test_corrected_p_values_are_those_of_benjamini_and_hochberg():
    """q_i = min over p_j ≥ p_i of m p_j / rank_j; neither NaN nor 1 is counted."""
    p = torch.rand(3, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 3
    q = false_discovery_rates(p)
    flat = p.flatten()
    rank = (flat[:, None] >= flat).sum(-1)
    for i, own in enumerate(flat):
        expected = (flat * len(flat) / rank)[flat >= own].min()
        assert q.flatten()[i].item() == pytest.approx(expected.item())
    padded = torch.cat([p, torch.full((3, 5), torch.nan), torch.ones(3, 5)], dim=-1)
    assert torch.equal(false_discovery_rates(padded)[:, :40], q)
    assert bool(false_discovery_rates(padded)[:, 40:45].isnan().all())
    assert bool((false_discovery_rates(padded)[:, 45:] == 1).all())
    assert bool(false_discovery_rates(torch.full((2,), torch.nan)).isnan().all())


def test_of_many_heads_without_effect_few_are_named():
    """144 of them in 24 prompts: 7 have p ≤ 0.05 in each table; in 1 of 20 tables a q is."""
    tables = draw("normal", 24, draws=144 * 500).unflatten(0, (500, 144))
    p = interval(tables).p
    named = torch.stack([false_discovery_rates(own) for own in p]) <= LEVEL
    assert 6.5 <= float((p <= LEVEL).sum(-1).double().mean()) <= 7.5
    assert float(named.any(-1).double().mean()) <= 0.075
