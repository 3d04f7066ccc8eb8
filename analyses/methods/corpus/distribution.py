"""Streaming histograms of values: quantiles with a bounded relative error.

A value x falls into the bucket ⌊16 log₂ |x|⌋ of its sign, so that every quantile has a relative
error of at most 2.2 %, whatever the values are (Masson et al. 2019, "DDSketch"). Counts depend
neither on the order of the values nor on how they are divided into batches.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

PER_DOUBLING = 16
"""Number of buckets between a value and its double."""
OCTAVES = 20
"""Values below 2^-20 count as 0, and those above 2^20 fall into the last bucket."""
SIDE = 2 * OCTAVES * PER_DOUBLING
"""Number of buckets of each sign."""
CHUNK = 2**22
"""Number of values counted at a time."""


class Distribution:
    """The distribution of the values of several units.

    Attributes:
        counts: number of values in each bucket, from the most negative to the largest.
        n: number of values of each unit.
        total: sum of the values.
        positive: number of values above 0.
        smallest: the smallest value.
        largest: the largest value.
    """

    def __init__(self, units: int, device: torch.device) -> None:
        self.counts: Int[Tensor, "unit bucket"] = torch.zeros(
            units, 2 * SIDE + 1, dtype=torch.long, device=device
        )
        self.n = 0
        self.total: Float[Tensor, " unit"] = torch.zeros(units, dtype=torch.float64, device=device)
        self.positive: Int[Tensor, " unit"] = torch.zeros(units, dtype=torch.long, device=device)
        self.smallest: Float[Tensor, " unit"] = torch.full_like(self.total, torch.inf)
        self.largest: Float[Tensor, " unit"] = torch.full_like(self.total, -torch.inf)

    def add(self, values: Float[Tensor, "unit cell"]) -> None:
        """Count more values of each unit."""
        if not values.numel():
            return
        at_once = max(1, CHUNK // values.shape[1])
        for counts, unit_values in zip(
            self.counts.split(at_once), values.split(at_once), strict=True
        ):
            counts.add_(_counts(unit_values))  # a view of self.counts
        self.n += values.shape[1]
        self.total += values.double().sum(-1)
        self.positive += (values > 0).sum(-1)
        self.smallest = self.smallest.minimum(values.amin(-1).double())
        self.largest = self.largest.maximum(values.amax(-1).double())

    def merge(self, other: "Distribution") -> None:
        """Add the values of another distribution of the same units."""
        device = self.counts.device
        self.counts += other.counts.to(device)
        self.n += other.n
        self.total += other.total.to(device)
        self.positive += other.positive.to(device)
        self.smallest = self.smallest.minimum(other.smallest.to(device))
        self.largest = self.largest.maximum(other.largest.to(device))

    def quantiles(self, levels: Sequence[float]) -> Float[Tensor, "unit level"]:
        """The smallest value that at least a share ``level`` of all values do not exceed.

        The relative error is at most 2.2 %.
        """
        below = self.counts.cumsum(-1).double()
        wanted = torch.tensor(levels, dtype=torch.float64, device=below.device) * self.n
        # The ranks are whole numbers: a share of n that rounds up by 1e-12 is still the same rank.
        ranks = (wanted - 1e-6).ceil().clamp(min=1).expand(len(below), -1)
        quantiles = _values(self.counts.device)[torch.searchsorted(below, ranks.contiguous())]
        quantiles = quantiles.maximum(self.smallest[:, None]).minimum(self.largest[:, None])
        return quantiles.where(ranks < self.n, self.largest[:, None])

    @property
    def mean(self) -> Float[Tensor, " unit"]:
        """The mean of each unit."""
        return self.total / self.n

    def histogram(self, unit: int) -> tuple[Float[Tensor, " bucket"], Int[Tensor, " bucket"]]:
        """The non-empty buckets of one unit: the midpoint of each, and its number of values."""
        counts = self.counts[unit]
        return _values(counts.device)[counts > 0], counts[counts > 0]


def _counts(values: Float[Tensor, "unit cell"]) -> Int[Tensor, "unit bucket"]:
    """The number of values of each unit in each bucket."""
    n = 2 * SIDE + 1
    start = torch.arange(len(values), device=values.device)[:, None] * n
    return (_bucket(values) + start).flatten().bincount(minlength=len(values) * n).view(-1, n)


def _bucket(values: Float[Tensor, "unit cell"]) -> Int[Tensor, "unit cell"]:
    """The index of the bucket of each value."""
    size = values.abs().double()
    step = (size.clamp(min=2.0**-OCTAVES).log2() * PER_DOUBLING).floor().long() + SIDE // 2
    step = (step + 1).clamp(max=SIDE).where(size >= 2.0**-OCTAVES, 0)
    return step.where(values > 0, -step) + SIDE


def _values(device: torch.device) -> Float[Tensor, " bucket"]:
    """The midpoint of each bucket, on a logarithmic scale."""
    step = torch.arange(SIDE, dtype=torch.float64, device=device) - SIDE // 2
    size = 2.0 ** ((step + 0.5) / PER_DOUBLING)
    return torch.cat([-size.flip(0), size.new_zeros(1), size])
