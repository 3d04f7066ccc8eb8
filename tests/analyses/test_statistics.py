"""Intervals and p-values: monotone, near Student's t where it is right, better where it is not."""

from itertools import pairwise
from math import sqrt
from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from architectures import covering
from hypothesis import given
from scipy import stats
from torch import Tensor

from analyses.results.statistics import FEWEST, LEVEL, Moments, false_discovery_rates, interval
from tools.coverage import LAST, METHODS, SHAPES, SIZES, beyond_data, draw, t_ends

CONTINUOUS = [shape for shape in SHAPES if not shape.startswith("two values")]


def p_of_t(x: Tensor) -> Tensor:
    """The p-values of Student's t, by scipy."""
    return torch.as_tensor(stats.ttest_1samp(x.numpy(), 0, axis=-1).pvalue)


def share(flags: Tensor) -> float:
    return float(flags.double().mean())


# ---- monotone, and near Student's t ---------------------------------------------------------

SIX = torch.tensor([0.64, 0.87, 0.9, 0.93, 1.0, 1.11]).double()
"""Effects on six prompts, all of one sign, with a skewness of −0.8 and t = 14."""


def test_a_large_effect_has_a_p_value_near_that_of_student():
    assert p_of_t(SIX) < 1e-4
    assert 1 <= interval(SIX).p / p_of_t(SIX) < 2
    assert interval(-SIX).p == pytest.approx(interval(SIX).p)


@pytest.mark.parametrize("n", [5, 6, 50])
@pytest.mark.parametrize("shape", SHAPES)
def test_p_falls_as_the_effect_grows(shape, n):
    """At every step away from zero, however large the effect, until p is too small for a float."""
    x = draw(shape, n, draws=20)
    x = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True).clamp(min=1e-3)
    x = x[x.std(-1) > 0.5]
    for sign in (1, -1):
        moves = sign * torch.linspace(0, 60, 121).double()
        p = interval(x[:, None] + moves[:, None]).p
        assert bool(((p[:, 1:] < p[:, :-1]) | (p[:, :-1] < 1e-300)).all())
        assert bool((p[:, 0] > 0.999).all())


def test_a_skewness_of_any_size_leaves_no_plateau():
    """The slope of the corrected t never falls below 1/4 of that of t."""
    for n in (5, 6, 50, 1000):
        x = torch.zeros(n).double()
        x[-1] = 1
        x = (x - x.mean()) / x.std()
        move = torch.linspace(-60, 60, 2001)[:, None].double()
        p = interval(x + move).p.numpy()
        t = torch.as_tensor(-stats.t.ppf(p / 2, n - 1)) * move[:, 0].sign()
        seen = torch.as_tensor(p > 1e-280)
        slope = (t.diff() / move[:, 0].diff() / sqrt(n))[seen[1:] & seen[:-1]]
        assert bool((slope > 0.25).all())


@pytest.mark.parametrize("n", [5, 6, 50])
@pytest.mark.parametrize("shape", CONTINUOUS)
def test_p_is_at_most_the_level_where_the_interval_excludes_zero(shape, n):
    x = draw(shape, n, draws=1000)
    for estimate in (interval(x), interval(x + 2 * x.std() / sqrt(n))):
        assert torch.equal(estimate.p <= LEVEL, (estimate.low > 0) | (estimate.high < 0))
        assert 0 < share(estimate.p <= LEVEL) < 1


def test_the_ends_are_the_means_with_p_of_the_level():
    """Moved so that an end lies at zero, the values have p = 0.05."""
    for shape in ("normal", "squared normal"):
        x = draw(shape, 6, draws=100)
        estimate = interval(x)
        for end in (estimate.low, estimate.high):
            p = interval(x - end[:, None]).p
            torch.testing.assert_close(p, torch.full_like(p, LEVEL), rtol=1e-9, atol=0)


def test_symmetric_values_have_the_interval_of_student():
    x = draw("normal", 4, draws=500)
    x = torch.cat([x, -x], dim=-1) + 0.5
    estimate = interval(x)
    low, high = t_ends(x)
    torch.testing.assert_close(estimate.low, low)
    torch.testing.assert_close(estimate.high, high)
    torch.testing.assert_close(estimate.p, p_of_t(x))


# ---- power and width, where Student's t is right --------------------------------------------


@pytest.mark.parametrize("n", covering(SIZES, [6, 24]))
def test_of_normal_data_it_has_nine_tenths_of_the_power_of_student(n):
    """At 5 % and at 0.1 %, for means that t finds in 1 % to 99.9 % of draws."""
    x = draw("normal", n, draws=20_000)
    for mean in (0.25, 0.5, 0.75, 1.0, 1.5, 2.0):
        p, of_t = interval(x + mean).p, p_of_t(x + mean)
        for level in (0.05, 0.001):
            power = share(of_t <= level)
            if 0.01 < power < 0.999:
                assert share(p <= level) >= 0.9 * power, (level, mean)


def test_intervals_of_six_normal_values_are_little_wider_than_those_of_student():
    """And don't reach further beyond the data: 95th percentile, in standard deviations."""
    x = draw("normal", 6)
    estimate, (low, high) = interval(x), t_ends(x)
    assert (estimate.high - estimate.low).median() <= 1.1 * (high - low).median()
    assert beyond_data(x, estimate.low, estimate.high) <= beyond_data(x, low, high) + 0.05


# ---- false findings --------------------------------------------------------------------------


@pytest.mark.parametrize("n", [5, 8, 24])
@pytest.mark.parametrize("shape", ["normal", "uniform", "two-sided exponential"])
def test_means_of_zero_of_symmetric_data_seldom_seem_to_differ_from_it(shape, n):
    """The standard error of a share is 0.1 %."""
    below, above = METHODS["**used here**"][0](draw(shape, n))
    assert 0.015 <= share(below) <= 0.0325
    assert 0.015 <= share(above) <= 0.0325


@pytest.mark.parametrize("n", [5, 8, 12, 50])
@pytest.mark.parametrize(
    "shape", ["lognormal, σ = ½", "exponential", "squared normal", "lognormal, σ = 1"]
)
def test_of_skewed_data_the_excess_of_false_findings_is_smaller_than_student_s(shape, n):
    """By a fifth at least with five values, by half from twelve on."""
    x = draw(shape, n)
    false, of_t = share(interval(x).p <= LEVEL), share(p_of_t(x) <= LEVEL)
    assert of_t > 0.055
    assert false - 0.05 <= (0.8 if n < 12 else 0.6) * (of_t - 0.05)


def page_rows(title: str) -> dict[tuple[str, str], list[str]]:
    """The rows of a table of docs/explanation/statistics.md: by data and method, cells by n."""
    page = Path(__file__).parents[2] / "docs" / "explanation" / "statistics.md"
    lines = page.read_text(encoding="utf-8").partition(title)[2].strip().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    head = cells[0].index("n = 5")
    return {(row[0], row[head - 1]): row[head:] for row in cells if row[0] in SHAPES}


@pytest.mark.parametrize("method", LAST)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_page_has_the_measured_shares_of_false_findings(shape, method):
    """Within 5 standard errors of other draws."""
    draws = 10_000
    cells = page_rows("Means of zero that seem to differ")[shape, method]
    for n, cell in zip(SIZES, cells, strict=True):
        measured = share(torch.stack(METHODS[method][0](draw(shape, n, draws, seed=1))).any(0))
        error = sqrt(max(measured, 1e-3) / draws * 1.25)
        assert float(cell) / 100 == pytest.approx(measured, abs=5 * error + 5e-4)


# ---- what every interval does ----------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_few_prompts_have_no_interval(n):
    estimate = interval(torch.ones(2, 3, n))
    for field in (estimate.low, estimate.high, estimate.p):
        assert field.shape == (2, 3)
        assert bool(field.isnan().all())
    assert torch.equal(estimate.mean, torch.ones(2, 3).double())
    assert torch.equal(estimate.size, torch.ones(2, 3).double())
    assert bool(interval(torch.ones(2, 3, FEWEST)).p.isfinite().all())


@pytest.mark.parametrize("kind", ["normal", "exponential"])
@pytest.mark.parametrize("n", [5, 6, 24])
def test_an_interval_moves_with_its_data(kind, n):
    """Shifted, scaled, mirrored, reordered."""
    x = draw(kind, n, draws=50)
    estimate = interval(x)
    moved, mirrored = interval(3 * x + 7), interval(-x.flip(-1))
    for name in ("mean", "low", "high"):
        torch.testing.assert_close(getattr(moved, name), 3 * getattr(estimate, name) + 7)
    torch.testing.assert_close(mirrored.low, -estimate.high)
    torch.testing.assert_close(mirrored.high, -estimate.low)
    torch.testing.assert_close(mirrored.p, estimate.p)
    assert bool((estimate.low < estimate.mean).all() and (estimate.mean < estimate.high).all())


def test_a_skewed_end_is_further_away():
    """The values that are missing are those of the long tail."""
    estimate = interval(torch.tensor([0.0, 0.1, 0.1, 0.2, 0.2, 0.3, 0.4, 2.0]))
    assert estimate.high - estimate.mean > 1.3 * (estimate.mean - estimate.low)


def test_equal_values_leave_no_doubt_unless_they_are_zero():
    values = torch.tensor([[0.0] * 8, [0.25] * 8, [-0.25] * 8, [1e-9] * 8, [0.1] * 8])
    estimate = interval(values, noise=1e-6)
    assert estimate.p.tolist() == [1.0, 0.0, 0.0, 1.0, 0.0]
    assert torch.equal(estimate.low[:3], values[:3, 0].double())
    assert torch.equal(estimate.high[:3], values[:3, 0].double())
    assert bool((estimate.high - estimate.low < 1e-12).all())


def test_a_mean_within_the_noise_is_no_effect():
    x = 1e-3 + 1e-6 * draw("normal", 12, draws=50)
    assert bool((interval(x).p < 1e-6).all())
    assert bool((interval(x, noise=2e-3).p == 1).all())
    assert bool((interval(x, noise=1e-4).p < 1e-6).all())


def test_the_size_does_not_cancel():
    estimate = interval(torch.tensor([1.0, -1.0] * 4))
    assert (estimate.mean.item(), estimate.size.item(), estimate.p.item()) == (0.0, 1.0, 1.0)


# ---- many cells ------------------------------------------------------------------------------


def test_corrected_p_values_are_those_of_benjamini_and_hochberg():
    """q_i = min over p_j ≥ p_i of m p_j / rank_j; neither NaN nor 1 is counted."""
    p = torch.rand(3, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 3
    q = false_discovery_rates(p)
    flat = p.flatten()
    rank = (flat[:, None] >= flat).sum(-1)
    for i, p_i in enumerate(flat):
        expected = (flat * len(flat) / rank)[flat >= p_i].min()
        assert q.flatten()[i].item() == pytest.approx(expected.item())
    padded = torch.cat([p, torch.full((3, 5), torch.nan), torch.ones(3, 5)], dim=-1)
    assert torch.equal(false_discovery_rates(padded)[:, :40], q)
    assert bool(false_discovery_rates(padded)[:, 40:45].isnan().all())
    assert bool((false_discovery_rates(padded)[:, 45:] == 1).all())
    assert bool(false_discovery_rates(torch.full((2,), torch.nan)).isnan().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_q_is_below_its_p_and_q_never_falls_where_p_rises(dtype):
    """In families of every size up to 300."""
    generator = torch.Generator().manual_seed(0)
    for count in range(1, 300):
        p = torch.rand(count, generator=generator, dtype=dtype).sort().values
        q = false_discovery_rates(p)
        assert bool((q >= p).all() and (q <= 1).all() and (q.diff() >= 0).all())
        assert q[-1] == p[-1]


P_VALUES = st.floats(0, 1, width=64)


@given(st.lists(P_VALUES, min_size=1, max_size=12))
def test_corrected_p_values_are_in_the_order_of_p_and_not_below_it(values):
    p = torch.tensor(values, dtype=torch.float64)
    q = false_discovery_rates(p)
    assert bool((q >= p).all() and (q <= 1).all())
    order = p.argsort()
    assert bool((q[order].diff() >= 0).all())
    assert all(q[i] == q[j] for i, j in pairwise(order.tolist()) if p[i] == p[j])


def test_a_p_value_alone_is_not_changed():
    """Also where p · 1 / 1 is computed in another order on another processor."""
    for p in (0.977417425550948, 0.05, 1e-300, 0.0):
        alone = torch.tensor([p], dtype=torch.float64)
        assert torch.equal(false_discovery_rates(alone), alone)


def test_of_many_heads_without_effect_few_are_named():
    """144 of them in 24 prompts: 7 have p ≤ 0.05 in each table; in 1 of 20 tables a q is."""
    tables = draw("normal", 24, draws=144 * 500).unflatten(0, (500, 144))
    p = interval(tables).p
    named = torch.stack([false_discovery_rates(table) for table in p]) <= LEVEL
    assert 6.5 <= float((p <= LEVEL).sum(-1).double().mean()) <= 7.5
    assert float(named.any(-1).double().mean()) <= 0.075


def test_moments_have_the_interval_of_the_values_however_they_are_divided():
    values = draw("lognormal, σ = 1", 40, draws=6)
    values[1, 7:] = torch.nan
    values[2, FEWEST - 1 :] = torch.nan
    values[3] = 2.0
    for parts in ([40], [1] * 40, [3, 0, 20, 17]):
        moments = Moments.none(6)
        for part in values.split(parts, -1):
            moments = moments.merged(Moments.of(part))
        low, high = moments.ends()
        for row, value in enumerate(values):
            expected = interval(value[~value.isnan()])
            assert moments.n[row] == expected.n
            for actual, wanted in (
                (moments.mean[row], expected.mean),
                (low[row], expected.low),
                (high[row], expected.high),
            ):
                torch.testing.assert_close(actual, wanted, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_moments_of_fewer_values_have_another_interval():
    values = draw("lognormal, σ = 1", 40, draws=3)
    few, whole = (Moments.of(values[:, :n]).ends() for n in (20, 40))
    assert not torch.allclose(few[0], whole[0])
