"""The tokens, or pairs of tokens, with the largest mass of each head, in bounded memory.

A summary of ``size`` counters for each head (Misra and Gries 1982, "Finding repeated elements";
merged as in Agarwal et al. 2012, "Mergeable summaries"): new masses are added to those of the same
key; of more than ``size`` keys the largest remain, each less the next largest mass. A mass is thus
never too large, and too small by at most the sum of what was subtracted, which is the stated error:
at most the total mass over ``size`` + 1. With no more keys than counters it is 0.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

NO_KEY = -1


class Sketch:
    """Masses by key, of several units.

    Attributes:
        keys: the keys; ``NO_KEY`` where there is none.
        mass: mass of each key, at most ``error`` less than the true one.
        error: the largest error of a mass so far.
        total: sum of all masses.
    """

    def __init__(self, units: int, size: int) -> None:
        self.keys: Int[Tensor, "unit key"] = torch.full((units, size), NO_KEY)
        self.mass: Float[Tensor, "unit key"] = torch.zeros(units, size, dtype=torch.float64)
        self.error: Float[Tensor, " unit"] = torch.zeros(units, dtype=torch.float64)
        self.total: Float[Tensor, " unit"] = torch.zeros(units, dtype=torch.float64)

    def add(
        self, units: slice, keys: Int[Tensor, "unit entry"], mass: Float[Tensor, "unit entry"]
    ) -> None:
        """Add masses of some units, whose keys may occur several times."""
        mass = mass.double().cpu()
        self.total[units] += mass.sum(1)
        self._add(units, keys.cpu(), mass)

    def merge(self, other: "Sketch") -> None:
        """Add the masses of another sketch of the same units, with its error."""
        self.total += other.total
        self.error += other.error
        used = int((other.mass > 0).sum(1).max())  # the largest come first
        self._add(slice(None), other.keys[:, :used], other.mass[:, :used])

    def _add(self, units: slice, keys: Tensor, mass: Tensor) -> None:
        keys, mass = _summed(
            torch.cat([self.keys[units], keys], 1), torch.cat([self.mass[units], mass], 1)
        )
        size = self.keys.shape[1]
        largest, places = mass.topk(size + 1)
        cut = largest[:, -1:]
        remaining = (largest[:, :-1] - cut).clamp(min=0)
        self.mass[units] = remaining
        self.keys[units] = keys.gather(1, places[:, :-1]).where(remaining > 0, NO_KEY)
        self.error[units] += cut[:, 0]

    def top(self, n: int) -> tuple[Int[Tensor, "unit rank"], Float[Tensor, "unit rank"]]:
        """The ``n`` keys with the largest masses; of equal masses, the smaller keys first."""
        keys, mass = self.keys.clone(), self.mass
        order = keys.argsort(1)
        ranked = mass.gather(1, order).argsort(dim=1, descending=True, stable=True)
        order = order.gather(1, ranked)[:, :n]
        return keys.gather(1, order), mass.gather(1, order)


def _summed(keys: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    """The different keys of each row with their summed masses, then blanks, one at least."""
    keys, order = keys.sort(dim=1, stable=True)
    mass = mass.gather(1, order)
    begins = torch.ones_like(keys, dtype=torch.bool)
    begins[:, 1:] = keys[:, 1:] != keys[:, :-1]
    number = begins.cumsum(1) - 1
    blank = (len(keys), keys.shape[1] + 1)
    summed = mass.new_zeros(blank).scatter_add_(1, number, mass)
    return keys.new_full(blank, NO_KEY).scatter_(1, number, keys), summed
