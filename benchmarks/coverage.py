"""How often a mean of zero is found to differ from zero, by method and distribution of the data.

    python -m benchmarks.coverage                      # print the tables, a minute
    python -m benchmarks.coverage --docs docs/explanation/statistics.md    # and write them

No model is involved: the data are random, with known means. The same seeds give the same figures on
every machine, up to rounding.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from math import exp, sqrt
from pathlib import Path

import torch
from torch import Tensor
from torch.special import ndtr

from analyses.statistics import (
    LEVEL,
    false_discovery_rates,
    interval,
    student_quantile,
)
from benchmarks.table import write_between
from benchmarks.timing import Absent

MARKERS = ("<!-- figures of benchmarks.coverage -->", "<!-- end of figures -->")
SIZES = (5, 8, 12, 24, 50)
DRAWS = 40_000
RESAMPLES = 999
HEADS = 144

SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": lambda x: x,
    "uniform": lambda x: ndtr(x) - 0.5,
    "two-sided exponential": lambda x: -(2 * ndtr(-x.abs())).log() * x.sign(),
    "lognormal, σ = ½": lambda x: (x / 2).exp() - exp(1 / 8),
    "exponential": lambda x: -ndtr(x).log() - 1,
    "squared normal": lambda x: x.square() - 1,
    "lognormal, σ = 1": lambda x: x.exp() - exp(1 / 2),
}
"""Distributions with mean zero, as functions of standard normal numbers."""
SKEWNESS = {
    "lognormal, σ = ½": 1.75,
    "exponential": 2.0,
    "squared normal": 2.83,
    "lognormal, σ = 1": 6.18,
}


def draw(shape: str, n: int, draws: int = DRAWS) -> Tensor:
    """Values from a distribution with mean zero, ``[draw prompt]``; the seed is ``n``."""
    generator = torch.Generator().manual_seed(n)
    return SHAPES[shape](torch.randn(draws, n, generator=generator, dtype=torch.float64))


def by_interval(x: Tensor) -> Tensor:
    """Whether the mean of each row differs from zero, by :func:`analyses.statistics.interval`."""
    return interval(x).p <= LEVEL


def by_t(x: Tensor) -> Tensor:
    """Whether it differs by Student's t-test, which assumes normal data."""
    n = x.shape[-1]
    return (x.mean(-1) / x.std(-1) * sqrt(n)).abs() > student_quantile(n - 1)


def by_bootstrap(x: Tensor) -> Tensor:
    """Whether it differs by the percentiles of resampled means (Efron 1979)."""
    n = x.shape[-1]
    picks = torch.randint(n, (RESAMPLES, n), generator=torch.Generator().manual_seed(0))
    counts = torch.zeros(RESAMPLES, n, dtype=torch.float64)
    counts.scatter_add_(1, picks, torch.ones_like(counts))
    ends = torch.tensor([LEVEL / 2, 1 - LEVEL / 2], dtype=torch.float64)
    low, high = torch.quantile(x @ counts.T / n, ends, dim=-1)
    return (low > 0) | (high < 0)


METHODS = {
    "percentile bootstrap": (by_bootstrap, DRAWS // 10),
    "Student's t": (by_t, DRAWS),
    "**used here**": (by_interval, DRAWS),
}
"""Each method, with its number of draws."""


def false_findings() -> str:
    """Table: the share of means of zero that are found to differ from zero, in percent."""
    rows = [
        [shape, f"{SKEWNESS.get(shape, 0):.3g}", method]
        + [percent(decide(draw(shape, n, draws))) for n in SIZES]
        for shape in SHAPES
        for method, (decide, draws) in METHODS.items()
    ]
    return table(["data", "skewness", "method", *(f"n = {n}" for n in SIZES)], rows)


def true_findings() -> str:
    """Table: the share of normal data found to differ from zero, in percent, by their mean."""
    rows = [
        [f"{mean:g}", method] + [percent(decide(draw("normal", n, draws) + mean)) for n in SIZES]
        for mean in (0.5, 1.0, 2.0)
        for method, (decide, draws) in list(METHODS.items())[1:]
    ]
    return table(["mean / standard deviation", "method", *(f"n = {n}" for n in SIZES)], rows)


def many_heads() -> str:
    """Table: how many of many heads without effect are reported."""
    rows: list[list[str]] = []
    for shape in ("normal", "lognormal, σ = ½", "exponential"):
        for n in SIZES[1:]:
            p = interval(draw(shape, n, HEADS * 1000)).p.unflatten(0, (1000, HEADS))
            named = torch.stack([false_discovery_rates(own) <= LEVEL for own in p])
            uncorrected = (p <= LEVEL).sum(-1).double().mean()
            rows.append([shape, str(n), f"{uncorrected:.1f}", percent(named.any(-1))])
    head = ["data", "n", f"heads with p ≤ {LEVEL}", f"tables with a q ≤ {LEVEL} (%, 5 is right)"]
    return table(head, rows)


def percent(found: Tensor) -> str:
    """The share of true values, in percent."""
    return f"{100 * found.double().mean():.1f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, and write them if ``--docs`` is given."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.coverage",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--docs", type=Path, help="write the tables between this file's markers")
    options = parser.parse_args(arguments)
    figures = "\n\n".join(
        [
            "Means of zero that seem to differ from zero, in percent (5 is right):",
            false_findings(),
            "Means of normal data that are found to differ from zero, in percent:",
            true_findings(),
            f"Of {HEADS} heads without effect, in 1000 tables:",
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
