"""ALiBi: scores decrease linearly with distance (Press et al. 2022)."""

from dataclasses import dataclass
from math import floor, log2

import torch
from jaxtyping import Float
from torch import Tensor

from interp.model.context import Context
from interp.model.positions.scheme import PositionBias, PositionScheme


@dataclass(frozen=True)
class ALiBi(PositionScheme):
    """−slope_h · |i − j|, with slopes 2^(−8h/n) (and BLOOM's rule for other numbers of heads).

    Attributes:
        n_heads: number of query heads.
        factor: multiplier of all slopes.
    """

    has_bias = True
    n_heads: int = 1
    factor: float = 1.0

    def slopes(self) -> Float[Tensor, " head"]:
        """One slope per head, in float64."""
        return self.factor * self._powers()

    def _powers(self) -> Float[Tensor, " head"]:
        """The slopes, without the factor."""
        power = 2 ** floor(log2(self.n_heads))
        first = 2.0 ** (-8.0 / power * torch.arange(1, power + 1).double())
        odd = torch.arange(1, 1 + 2 * (self.n_heads - power), 2).double()
        return torch.cat([first, 2.0 ** (-4.0 / power * odd)])

    def bias(self, context: Context) -> PositionBias:
        """−slope · distance."""
        distance = context.key_less_query.abs().double()
        return -self.slopes().to(distance.device)[None, :, None, None] * distance[:, None]


@dataclass(frozen=True)
class RoundedALiBi(ALiBi):
    """factor · (slope_h · j) for key position j, with slope and product in bfloat16 (Falcon).

    Without rounding it differs from :class:`ALiBi` by a constant per query, to which the softmax is
    invariant. With rounding it depends on j itself, from about 256 tokens on.
    """

    def slopes(self) -> Float[Tensor, " head"]:
        """One slope per head, rounded to bfloat16, times the factor."""
        return self.factor * self._powers().bfloat16().double()

    def bias(self, context: Context) -> PositionBias:
        """The bias of each key, which is the same for every query."""
        keys, slopes = context.key_positions, self._powers().bfloat16().to(context.positions.device)
        bias = self.factor * (slopes[:, None] * keys[:, None, :]).double()
        return bias[:, :, None, :].expand(-1, -1, context.n_query, -1)
