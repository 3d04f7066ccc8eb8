"""How far can a mean over prompts be trusted? Intervals and p-values that allow for skewed data.

With W = (x̄ − μ)/s and the sample skewness γ, Student's t = √n·W is replaced by Hall's monotone
transformation, which removes the skewness of t (Hall 1992, "On the Removal of Skewness by
Transformation", without its constant):

    T = √n · (W + γ W²/3 + γ² W³/27)        against Student's t with n − 1 degrees of freedom

γ moves one end of the interval outwards and the other inwards. Inwards it moves by γ/2 only, since
a heavy tail on both sides looks like skewness in a few values. Measured errors of the first kind
are in docs/explanation/statistics.md.
"""

from dataclasses import dataclass
from functools import cache
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor

FEWEST = 5
"""Number of prompts below which there is no interval."""
LEVEL = 0.05
"""Significance level of p- and q-values; intervals have level 1 − LEVEL."""


@dataclass(frozen=True, eq=False)
class Interval:
    """A mean over prompts with its 95 % interval; NaN below ``FEWEST`` prompts.

    Attributes:
        mean: over prompts.
        low: lower end of the interval.
        high: upper end of the interval.
        size: mean of the absolute values.
        p: two-sided p-value of a mean of zero.
        n: number of prompts.
    """

    mean: Float[Tensor, "*shape"]
    low: Float[Tensor, "*shape"]
    high: Float[Tensor, "*shape"]
    size: Float[Tensor, "*shape"]
    p: Float[Tensor, "*shape"]
    n: int


def interval(values: Float[Tensor, "*shape prompt"], noise: float = 0.0) -> Interval:
    """The mean over the last axis, its size, interval and p-value.

    Equal values have an interval of a single point, and p = 0 unless they are zero.

    Args:
        values: one value per prompt, in any number of cells.
        noise: means within ±noise count as zero in the p-value, e.g. for rounding errors.
    """
    x = values.detach().cpu().double()
    n, mean, size = x.shape[-1], x.mean(-1), x.abs().mean(-1)
    if n < FEWEST:
        none = torch.full_like(mean, torch.nan)
        return Interval(mean, none, none, size, none, n)
    deviation = x - mean[..., None]
    variance = deviation.square().mean(-1)
    s = (variance * n / (n - 1)).sqrt()
    third = (deviation.square() * deviation).mean(-1)
    skewness = third / variance.pow(1.5).clamp(min=TINY) * (sqrt(n * (n - 1)) / (n - 2))
    beyond = mean - mean.clamp(-noise, noise)
    t = _transformed(beyond / s.clamp(min=TINY), skewness) * sqrt(n)
    end = student_quantile(n - 1) / sqrt(n)
    low, high = (mean - s * _inverse(torch.full_like(s, side), skewness) for side in (end, -end))
    return Interval(mean, low, high, size, student_tail(t, n - 1), n)


def false_discovery_rates(p: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """p-values corrected for their number (Benjamini and Hochberg 1995); NaN stays NaN.

    Of the cells with q ≤ 0.05, at most one in twenty is expected to be there by chance, if p-values
    are independent or positively dependent. Cells with p = 1 (zero throughout) are not counted,
    since they can't be there by chance.
    """
    q, tested = p.clone(), p < 1
    ordered, order = p[tested].sort()
    ranks = torch.arange(1, len(ordered) + 1, dtype=p.dtype)
    corrected = (ordered * len(ordered) / ranks).flip(0).cummin(0).values.flip(0)
    q[tested] = torch.empty_like(corrected).scatter_(0, order, corrected)
    return q


# ---- Hall's transformation -------------------------------------------------------------------

TINY = 1e-150
"""In place of a standard deviation of zero; the largest W, cubed, is still finite."""


def _transformed(w: Tensor, skewness: Tensor) -> Tensor:
    """W + γ W²/3 + γ² W³/27."""
    a = _effective_skewness(w, skewness) * w / 3
    return w * (1 + a + a * a / 3)


def _inverse(t: Tensor, skewness: Tensor) -> Tensor:
    """The W whose transformation is ``t``: 3/γ · (∛(1 + γ t) − 1), also where γ is 0."""
    cube = 1 + _effective_skewness(t, skewness) * t
    root = cube.abs().pow(1 / 3).copysign(cube)
    return 3 * t / (root * root + root + 1)


def _effective_skewness(w: Tensor, skewness: Tensor) -> Tensor:
    """γ where it widens the interval, γ/2 where it narrows it."""
    return torch.where(w * skewness < 0, skewness, skewness / 2)


# ---- Student's t -----------------------------------------------------------------------------


def student_tail(t: Tensor, freedom: int) -> Tensor:
    """P(|T| ≥ |t|) for Student's t, by its finite series (Abramowitz and Stegun 26.7.3–4).

    Args:
        t: any values.
        freedom: degrees of freedom, 2 or more.
    """
    angle = (t.abs() / sqrt(freedom)).atan()
    odd = freedom % 2
    k = torch.arange(1, (freedom - odd) // 2, dtype=torch.float64)
    factors = torch.cat([k.new_ones(1), ((2 * k - 1 + odd) / (2 * k + odd)).cumprod(0)])
    powers = angle.cos().square()[..., None] ** torch.arange(len(factors))
    within = angle.sin() * (powers @ factors)
    if odd:
        within = (angle + angle.cos() * within) * 2 / torch.pi
    return (1 - within).clamp(min=0)


@cache
def student_quantile(freedom: int) -> float:
    """The t with P(|T| ≥ t) = LEVEL, by bisection."""
    low, high = torch.tensor(0.0, dtype=torch.float64), torch.tensor(100.0, dtype=torch.float64)
    for _ in range(60):
        middle = (low + high) / 2
        if student_tail(middle, freedom) > LEVEL:
            low = middle
        else:
            high = middle
    return float(high)
