"""How sure is a mean over prompts? Percentile bootstrap (Efron 1979)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Interval:
    """A mean and where it would lie for 95 in 100 such sets of prompts.

    Attributes:
        mean: over prompts.
        low: 2.5th percentile of resampled means.
        high: 97.5th percentile.
        n: how many prompts.
    """

    mean: Float[Tensor, "*shape"]
    low: Float[Tensor, "*shape"]
    high: Float[Tensor, "*shape"]
    n: int


def bootstrap(values: Float[Tensor, "*shape prompt"], draws: int = 2000, seed: int = 0) -> Interval:
    """The mean over the last axis with a 95 % interval; with one prompt, the interval is the mean.

    Every cell is resampled with the same prompts, so equal values give equal intervals, and the
    order of the cells does not matter.
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
