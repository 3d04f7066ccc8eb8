"""Confidence intervals of means over prompts: percentile bootstrap (Efron 1979)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Interval:
    """A mean over prompts with its 95 % bootstrap interval.

    Attributes:
        mean: over prompts.
        low: 2.5th percentile of resampled means.
        high: 97.5th percentile of resampled means.
        n: number of prompts.
    """

    mean: Float[Tensor, "*shape"]
    low: Float[Tensor, "*shape"]
    high: Float[Tensor, "*shape"]
    n: int


def bootstrap(values: Float[Tensor, "*shape prompt"], draws: int = 2000, seed: int = 0) -> Interval:
    """The mean over the last axis with a 95 % interval; one prompt gives ``low = mean = high``.

    All cells are resampled with the same draws of prompts, so equal values give equal intervals.

    Args:
        values: one value a prompt, in any number of cells.
        draws: resampled sets of prompts.
        seed: of the draws.
    """
    n = values.shape[-1]
    generator = torch.Generator().manual_seed(seed)
    picks = torch.randint(n, (draws, n), generator=generator)
    weights = torch.zeros(draws, n, dtype=torch.float64).scatter_add_(
        1, picks, torch.ones(draws, n, dtype=torch.float64)
    )
    exact = values.detach().cpu().double()
    means = exact @ weights.T / n
    low, high = torch.quantile(means, torch.tensor([0.025, 0.975], dtype=torch.float64), dim=-1)
    return Interval(exact.mean(-1), low, high, n)
