"""ALiBi: scores decrease linearly with distance (Press et al. 2022)."""

from dataclasses import dataclass
from math import floor, log2

import torch
from jaxtyping import Float
from torch import Tensor

from interp.model.context import Context
from interp.model.positions.none import NoPositions, PositionBias


@dataclass(frozen=True)
class ALiBi(NoPositions):
    """−slope_h · |i − j|, with slopes 2^(−8h/n) (and BLOOM's rule for other numbers of heads)."""

    has_bias = True
    n_heads: int = 1

    def slopes(self) -> Float[Tensor, " head"]:
        """One slope per head, in float64."""
        power = 2 ** floor(log2(self.n_heads))
        first = 2.0 ** (-8.0 / power * torch.arange(1, power + 1).double())
        odd = torch.arange(1, 1 + 2 * (self.n_heads - power), 2).double()
        return torch.cat([first, 2.0 ** (-4.0 / power * odd)])

    def bias(self, context: Context) -> PositionBias:
        """−slope · distance."""
        distance = context.key_less_query.abs().double()
        return -self.slopes().to(distance.device)[None, :, None, None] * distance[:, None]
