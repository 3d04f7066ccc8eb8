"""How far can a mean over prompts be trusted? Intervals and p-values that allow for skewed data.

With W = (x̄ − μ)/s and the sample skewness γ, Student's t = √n·W is corrected for skewness, and the
result is compared with Student's t with n − 1 degrees of freedom:

    T = √n · W · (1 + 4γ′W / (12 + (4 + γ²) W²))      γ′ = γ if γW < 0, else γ/2

To first order, √n·(W + γW²/3), it is the correction of Johnson (1978, "Modified t Tests and
Confidence Intervals for Asymmetrical Populations"). The denominator bounds it: T grows with W at
every W, by √n/4 or more, and for large W it approaches t up to a constant, so that a large effect
has a p-value near that of t. Where γ narrows the interval only half of it is used, since a heavy
tail on both sides looks like skewness in a few values. Why these constants, with the measured
errors of the first kind, power and widths: docs/explanation/statistics.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import torch
from jaxtyping import Float
from scipy.special import stdtr, stdtrit
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
    third = (deviation.square() * deviation).mean(-1)
    s, skewness = _shape(n, variance, third)
    below, above = _ends(n, s, skewness)
    p = _p_values(n, mean, s, skewness, noise)
    return Interval(mean, mean - below, mean + above, size, p, n)


@dataclass(frozen=True, eq=False)
class Moments:
    """The mean and the central moments of values that are added one part after another.

    So that a mean over a corpus has the interval of :func:`interval` without its values. Parts are
    merged as in Pébay (2008, "Formulas for Robust, One-Pass Parallel Computation of Covariances
    and Arbitrary-Order Statistical Moments").

    Attributes:
        n: number of values of each cell.
        mean: their mean; 0 if there are none.
        second: sum of squares of the deviations from the mean.
        third: sum of their cubes.
    """

    n: Float[Tensor, "*shape"]
    mean: Float[Tensor, "*shape"]
    second: Float[Tensor, "*shape"]
    third: Float[Tensor, "*shape"]

    @classmethod
    def none(cls, *shape: int) -> "Moments":
        """The moments of no values."""
        zeros = torch.zeros(shape, dtype=torch.float64)
        return cls(zeros, zeros, zeros, zeros)

    @classmethod
    def of(cls, values: Float[Tensor, "*shape sample"]) -> "Moments":
        """The moments over the last axis, without NaN."""
        x = values.detach().cpu().double()
        counted = ~x.isnan()
        n = counted.sum(-1).double()
        mean = x.where(counted, 0).sum(-1) / n.clamp(min=1)
        deviation = (x - mean[..., None]).where(counted, 0)
        square = deviation.square()
        return cls(n, mean, square.sum(-1), (square * deviation).sum(-1))

    def merged(self, other: "Moments") -> "Moments":
        """The moments of the values of both."""
        n = self.n + other.n
        safe, apart = n.clamp(min=1), other.mean - self.mean
        both = self.n * other.n / safe
        return Moments(
            n,
            self.mean + apart * other.n / safe,
            self.second + other.second + apart.square() * both,
            self.third
            + other.third
            + apart**3 * both * (self.n - other.n) / safe
            + 3 * apart * (self.n * other.second - other.n * self.second) / safe,
        )

    def ends(self) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
        """The ends of the 95 % interval of each mean; NaN below ``FEWEST`` values."""
        low, high = (torch.full_like(self.mean, torch.nan) for _ in range(2))
        for n, cells, mean, s, skewness in self._shapes():
            below, above = _ends(n, s, skewness)
            low[cells], high[cells] = mean - below, mean + above
        return low, high

    def p_values(self, noise: float = 0.0) -> Float[Tensor, "*shape"]:
        """The p-values of :func:`interval`; NaN below ``FEWEST`` values."""
        p = torch.full_like(self.mean, torch.nan)
        for n, cells, mean, s, skewness in self._shapes():
            p[cells] = _p_values(n, mean, s, skewness, noise)
        return p

    def _shapes(self) -> Iterator[tuple[int, Tensor, Tensor, Tensor, Tensor]]:
        """Each number of values from ``FEWEST``: the cells with so many, and their distribution."""
        for n in map(int, self.n.unique().tolist()):
            if n >= FEWEST:
                cells = self.n == n
                mean, second, third = (x[cells] for x in (self.mean, self.second, self.third))
                yield n, cells, mean, *_shape(n, second / n, third / n)


def false_discovery_rates(p: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """p-values corrected for their number (Benjamini and Hochberg 1995); NaN stays NaN.

    Of the cells with q ≤ 0.05, at most one in twenty is expected to be there by chance, if p-values
    are independent or positively dependent. Cells with p = 1 (zero throughout) are not counted,
    since they can't be there by chance. q is never below p, and never falls where p rises.
    """
    q, tested = p.clone(), p < 1
    ordered, order = p[tested].sort()
    ranks = torch.arange(1, len(ordered) + 1, dtype=p.dtype)
    # Not p · count / rank: no factor is rounded below 1, so that no q is rounded below its p.
    corrected = (ordered * (ranks[-1:] / ranks)).flip(0).cummin(0).values.flip(0)
    q[tested] = torch.empty_like(corrected).scatter_(0, order, corrected)
    return q


# ---- the correction for skewness -------------------------------------------------------------


def _shape(n: int, variance: Tensor, third: Tensor) -> tuple[Tensor, Tensor]:
    """The standard deviation and the skewness of a sample, from its second and third moment."""
    s = (variance * n / (n - 1)).sqrt()
    return s, third / variance.pow(1.5).clamp(min=TINY) * (sqrt(n * (n - 1)) / (n - 2))


def _p_values(n: int, mean: Tensor, s: Tensor, skewness: Tensor, noise: float) -> Tensor:
    """Two-sided p-values of a mean of zero, in which means within ±noise count as zero."""
    beyond = mean - mean.clamp(-noise, noise)
    t = sqrt(n) * _corrected(beyond / s.clamp(min=TINY), skewness)
    return torch.as_tensor(2 * stdtr(n - 1, -t.abs().numpy()))


def _ends(n: int, s: Tensor, skewness: Tensor) -> tuple[Tensor, Tensor]:
    """How far the interval of a mean reaches below and above it."""
    quantile = float(stdtrit(n - 1, 1 - LEVEL / 2)) / sqrt(n)
    below, above = _inverse(quantile, torch.stack((skewness, -skewness)))
    return s * below, s * above


TINY = 1e-150
"""In place of a standard deviation of zero; W and γ stay finite."""
HALVINGS, NEWTON_STEPS = 10, 4
"""Iterations of :func:`_inverse`: bisection to 3 digits, which each step of Newton then doubles."""


def _effective(skewness: Tensor, w: Tensor) -> Tensor:
    """γ′ at W."""
    return torch.where(w * skewness < 0, skewness, skewness / 2)


def _corrected(w: Tensor, skewness: Tensor) -> Tensor:
    """T/√n as a function of W: odd under a change of both signs, with slope above 1/4."""
    denominator = 12 + (4 + skewness.square()) * w.square()
    return w * (1 + 4 * _effective(skewness, w) * w / denominator)


def _slope(w: Tensor, skewness: Tensor) -> Tensor:
    """The derivative of :func:`_corrected` by W."""
    denominator = 12 + (4 + skewness.square()) * w.square()
    return 1 + 96 * _effective(skewness, w) * w / denominator.square()


def _inverse(corrected: float, skewness: Tensor) -> Tensor:
    """The W whose correction is a positive number.

    The correction is between 1 − 1/√3 and 1 + 1/√12 times W, so that the bounds enclose it.
    """
    low = torch.full_like(skewness, corrected / 2)
    high = torch.full_like(skewness, corrected * 3)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        is_above = _corrected(middle, skewness) > corrected
        low, high = torch.where(is_above, low, middle), torch.where(is_above, middle, high)
    w = (low + high) / 2
    for _ in range(NEWTON_STEPS):
        w = w - (_corrected(w, skewness) - corrected) / _slope(w, skewness)
    return w
