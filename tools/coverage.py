"""Intervals and tests of a mean over few values, by method and distribution of the data.

    python -m tools.coverage                      # print the tables, a few minutes
    python -m tools.coverage --docs docs/explanation/statistics.md    # and write them

Measured are false findings (a mean of zero that is found to differ from zero: the share of
intervals that don't contain the mean), power, widths, and findings among many heads. No model is
involved: the data are random, with known means. The same seeds give the same figures on every
machine, up to rounding.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from math import exp, sqrt
from pathlib import Path

import torch
from scipy.special import stdtr, stdtrit
from torch import Tensor
from torch.special import ndtr, ndtri

from analyses.results import LEVEL, false_discovery_rates, interval
from benchmarks.table import write_between
from benchmarks.timing import Absent

MARKERS = ("<!-- figures of tools.coverage -->", "<!-- end of figures -->")
SIZES = (5, 6, 8, 12, 24, 50)
DRAWS = 40_000
FEWER_DRAWS = 2_000
"""Of methods that resample, or try signs."""
RESAMPLES = 999
HEADS, TABLES = 144, 1000

RARE = 0.1
SHAPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "normal": lambda x, _: x,
    "uniform": lambda x, _: ndtr(x) - 0.5,
    "two values, ±1": lambda x, _: x.sign(),
    "two-sided exponential": lambda x, _: -(2 * ndtr(-x.abs())).log() * x.sign(),
    "normal, 1 in 10 five times as wide": lambda x, y: x * torch.where(_is_rare(y), 5.0, 1.0),
    "two values, 1 in 5 larger": lambda x, _: (x > ndtri(x.new_tensor(0.8))).double() - 0.2,
    "normal, 1 in 10 moved by 5": lambda x, y: x + 5 * _is_rare(y) - 5 * RARE,
    "lognormal, σ = ½": lambda x, _: (x / 2).exp() - exp(1 / 8),
    "exponential": lambda x, _: -ndtr(x).log() - 1,
    "squared normal": lambda x, _: x.square() - 1,
    "lognormal, σ = 1": lambda x, _: x.exp() - exp(1 / 2),
}
"""Distributions with mean zero, as functions of two standard normal numbers."""
SKEWNESS = {
    "two values, 1 in 5 larger": 1.5,
    "normal, 1 in 10 moved by 5": 1.54,
    "lognormal, σ = ½": 1.75,
    "exponential": 2.0,
    "squared normal": 2.83,
    "lognormal, σ = 1": 6.18,
}
SKEWED = ("normal", *list(SKEWNESS)[1:])
"""Shapes of the table of one-sided findings."""


def _is_rare(y: Tensor) -> Tensor:
    return y > ndtri(y.new_tensor(1 - RARE))


def draw(shape: str, n: int, draws: int = DRAWS, seed: int = 0) -> Tensor:
    """Values from a distribution with mean zero, ``[draw prompt]``; they depend on n and seed."""
    generator = torch.Generator().manual_seed(1000 * seed + n)
    return SHAPES[shape](*torch.randn(2, draws, n, generator=generator, dtype=torch.float64))


# ---- methods ---------------------------------------------------------------------------------

Ends = tuple[Tensor, Tensor]
"""The lower and upper ends of intervals, ``[draw]``."""


def t_quantile(n: int) -> float:
    """The |t| that normal data exceed with probability ``LEVEL``."""
    return float(stdtrit(n - 1, 1 - LEVEL / 2))


def used_ends(x: Tensor) -> Ends:
    """By :func:`analyses.results.interval`."""
    estimate = interval(x)
    return estimate.low, estimate.high


def t_ends(x: Tensor) -> Ends:
    """By Student's t, which assumes normal data."""
    n = x.shape[-1]
    half = t_quantile(n) * x.std(-1) / sqrt(n)
    return x.mean(-1) - half, x.mean(-1) + half


def hall_ends(x: Tensor) -> Ends:
    """By Hall's monotone transformation √n (W + γW²/3 + γ²W³/27) (1992); γ/2 where it narrows."""
    n, mean, s = x.shape[-1], x.mean(-1), x.std(-1)
    deviation = x - mean[:, None]
    third, variance = deviation.pow(3).mean(-1), deviation.square().mean(-1).clamp(min=1e-100)
    skewness = third / variance.pow(1.5) * sqrt(n * (n - 1)) / (n - 2)
    ends: list[Tensor] = []
    for t in (t_quantile(n) / sqrt(n), -t_quantile(n) / sqrt(n)):
        cube = 1 + torch.where(t * skewness < 0, skewness, skewness / 2) * t
        root = cube.abs().pow(1 / 3).copysign(cube)
        ends.append(mean - s * 3 * t / (root * root + root + 1))
    return ends[0], ends[1]


def resampled(x: Tensor) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of resampled rows, ``[draw resample]`` (Efron 1979)."""
    n = x.shape[-1]
    picks = torch.randint(n, (RESAMPLES, n), generator=torch.Generator().manual_seed(0))
    weights = torch.zeros(RESAMPLES, n, dtype=torch.float64)
    weights.scatter_add_(1, picks, torch.full_like(picks, 1 / n, dtype=torch.float64))
    mean = x @ weights.T
    variance = (x.square() @ weights.T - mean.square()).clamp(min=0) * n / (n - 1)
    return mean, variance.sqrt()


def tails(values: Tensor) -> Ends:
    """The quantiles of the last axis between which a share of 1 − ``LEVEL`` lies."""
    levels = torch.tensor([LEVEL / 2, 1 - LEVEL / 2], dtype=torch.float64)
    low, high = torch.quantile(values, levels, dim=-1)
    return low, high


def percentile_ends(x: Tensor) -> Ends:
    """By the percentiles of resampled means."""
    return tails(resampled(x)[0])


def studentised_ends(x: Tensor) -> Ends:
    """By the percentiles of t of resampled values: the studentised bootstrap."""
    mean, s = resampled(x)
    low, high = tails((mean - x.mean(-1, keepdim=True)) / s.clamp(min=1e-9))
    return x.mean(-1) - high * x.std(-1), x.mean(-1) - low * x.std(-1)


def excludes_zero(ends: Callable[[Tensor], Ends]) -> Callable[[Tensor], Ends]:
    """Which means are found below zero, and which above it, by the ends of their intervals."""

    def found(x: Tensor) -> Ends:
        low, high = ends(x)
        return high < 0, low > 0

    return found


def signs(n: int) -> Tensor:
    """All or ``RESAMPLES`` random signs of n values, without the equal ones, ``[flip prompt]``."""
    if 2 ** (n - 1) - 1 <= RESAMPLES:
        bits = torch.arange(1, 2 ** (n - 1))[:, None] >> torch.arange(n)
        return 1 - 2 * (bits & 1).double()
    generator = torch.Generator().manual_seed(0)
    return 1 - 2 * torch.randint(2, (RESAMPLES, n), generator=generator).double()


def by_signs(x: Tensor) -> Ends:
    """By permutation: is |mean| larger than with random signs of the values (Fisher 1935)?"""
    means, flips = x.sum(-1), signs(x.shape[-1])
    as_large = (x @ flips.T).abs() >= means.abs()[:, None] * (1 - 1e-9)
    is_found = (1 + as_large.sum(-1)) / (1 + len(flips)) <= LEVEL
    return is_found & (means < 0), is_found & (means > 0)


METHODS = {
    "percentile bootstrap": (excludes_zero(percentile_ends), FEWER_DRAWS),
    "studentised bootstrap": (excludes_zero(studentised_ends), FEWER_DRAWS),
    "random signs": (by_signs, FEWER_DRAWS),
    "Hall's transformation": (excludes_zero(hall_ends), DRAWS),
    "Student's t": (excludes_zero(t_ends), DRAWS),
    "**used here**": (excludes_zero(used_ends), DRAWS),
}
"""Each method, with its number of draws."""
LAST = ("Student's t", "**used here**")


# ---- tables ----------------------------------------------------------------------------------


def false_findings() -> str:
    """Table: the share of means of zero that are found to differ from zero, in percent."""
    rows = [
        [shape, f"{SKEWNESS.get(shape, 0):.3g}", method]
        + [percent(torch.stack(decide(draw(shape, n, draws))).any(0)) for n in SIZES]
        for shape in SHAPES
        for method, (decide, draws) in METHODS.items()
    ]
    return table(["data", "skewness", "method", *by_size()], rows)


def one_sided() -> str:
    """Table: the share of means of zero that are found below and above zero, in percent."""
    rows = [
        [shape, method] + [" / ".join(map(percent, decide(draw(shape, n, draws)))) for n in SIZES]
        for shape in SKEWED
        for method, (decide, draws) in METHODS.items()
        if method in LAST
    ]
    return table(["data", "method", *by_size()], rows)


def true_findings() -> str:
    """Table: the share of normal data found to differ from zero, in percent, by their mean."""
    rows = [
        [f"{mean:g}", method]
        + [percent(torch.stack(decide(draw("normal", n, draws) + mean)).any(0)) for n in SIZES]
        for mean in (0.5, 1.0, 2.0)
        for method, (decide, draws) in list(METHODS.items())[1:]
    ]
    return table(["mean / standard deviation", "method", *by_size()], rows)


def widths() -> str:
    """Table: how wide intervals of normal data are, and how far their ends lie beyond the data."""
    intervals = {
        "studentised bootstrap": (studentised_ends, FEWER_DRAWS),
        "Hall's transformation": (hall_ends, DRAWS),
        "Student's t": (t_ends, DRAWS),
        "**used here**": (used_ends, DRAWS),
    }
    rows: list[list[str]] = []
    for method, (ends, draws) in intervals.items():
        cells: list[str] = []
        for n in SIZES:
            x = draw("normal", n, draws)
            (low, high), (least, most) = ends(x), t_ends(x)
            width = (high - low).median() / (most - least).median()
            cells.append(f"{width:.2f} / {beyond_data(x, low, high):+.1f}")
        rows.append([method, *cells])
    return table(["method", *by_size()], rows)


def beyond_data(x: Tensor, low: Tensor, high: Tensor) -> float:
    """95th percentile of how far the farther end of an interval lies beyond all of its data."""
    beyond = torch.maximum(high - x.amax(-1), x.amin(-1) - low)
    return float(beyond.quantile(0.95))


def many_heads() -> str:
    """Table: findings among many heads without effect, and of one that has an effect."""
    rows: list[list[str]] = []
    for shape in ("normal", "lognormal, σ = ½", "exponential"):
        for n in SIZES[1:]:
            x = draw(shape, n, HEADS * TABLES)
            x = (x / x.std()).unflatten(0, (TABLES, HEADS))
            moved = x.clone()
            moved[:, 0] += 2
            cells = [f"{(interval(x).p <= LEVEL).sum(-1).double().mean():.1f}"]
            cells += [
                f"{percent(decide(x).any(-1))} / {percent(decide(moved)[:, 0])}"
                for decide in (by_q, by_t_and_q, by_largest)
            ]
            rows.append([shape, str(n), *cells])
    head = ["data", "n", f"heads with p ≤ {LEVEL}"]
    return table(
        [*head, "**q, used here**", "q of Student's t", "random signs, largest head"], rows
    )


def by_q(x: Tensor) -> Tensor:
    """Which heads of each table have a q-value of at most ``LEVEL``, ``[table head]``."""
    return torch.stack([false_discovery_rates(p) for p in interval(x).p]) <= LEVEL


def by_t_and_q(x: Tensor) -> Tensor:
    """The same with the p-values of Student's t."""
    n = x.shape[-1]
    p = torch.as_tensor(2 * stdtr(n - 1, -(x.mean(-1) / x.std(-1) * sqrt(n)).abs().numpy()))
    return torch.stack([false_discovery_rates(row) for row in p]) <= LEVEL


def by_largest(x: Tensor) -> Tensor:
    """Which heads have a |t| that the largest of all heads rarely has with random signs.

    The signs of a prompt are the same in all heads (Westfall and Young 1993).
    """
    x = x / x.square().mean(-1, keepdim=True).sqrt()
    means, flips = x.sum(-1).abs(), signs(x.shape[-1]).T
    largest = torch.stack([(rows @ flips).abs().amax(0) for rows in x])
    as_large = (largest[:, None] >= means[..., None] * (1 - 1e-9)).sum(-1)
    return (1 + as_large) / (1 + flips.shape[-1]) <= LEVEL


def by_size() -> list[str]:
    """The heads of columns."""
    return [f"n = {n}" for n in SIZES]


def percent(values: Tensor) -> str:
    """The share of true values, in percent."""
    return f"{100 * values.double().mean():.1f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, and write them if ``--docs`` is given."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.coverage",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--docs", type=Path, help="write the tables between this file's markers")
    options = parser.parse_args(arguments)
    figures = "\n\n".join(
        [
            "Means of zero that seem to differ from zero, in percent (5 is right; the coverage of "
            "an interval is 100 less this):",
            false_findings(),
            "Means of zero that seem to be below / above zero, in percent (2.5 / 2.5 is right):",
            one_sided(),
            "Means of normal data that are found to differ from zero, in percent:",
            true_findings(),
            "Intervals of normal data: median width, as a multiple of that of Student's t / how "
            "far the farther end lies beyond all of the data, in standard deviations (95th "
            "percentile; negative: within the data):",
            widths(),
            f"Tables of {HEADS} heads, {TABLES} of each kind: heads with p ≤ {LEVEL} if none has "
            "an effect; then, by three corrections for the number of heads, tables in which some "
            "head is found if none has an effect (%, 5 is right) / tables in which one head is "
            "found whose mean is two standard deviations (%):",
            many_heads(),
        ]
    )
    print(figures)
    try:
        if options.docs:
            write_between(options.docs, figures, MARKERS)
    except (Absent, OSError) as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
