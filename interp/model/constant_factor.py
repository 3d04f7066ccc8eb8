"""A constant factor on a sub-layer's output, as a norm whose divisor does not depend on x.

    x ↦ x / scale, with scale = 1 / factor                       (Granite, IBM 2024)

As a norm of the sub-layer's output, it needs no special case in any other part of the model.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from interp.config import NormConfig
from interp.model.norm import Features, Norm, NormPoints, Scale, ScaledNorm


class ConstantFactor(ScaledNorm):
    """x ↦ factor · x.

    Args:
        factor: the factor.
    """

    def __init__(self, factor: float) -> None:
        super().__init__(NormConfig(gain=False, bias=False), (), NormPoints())
        self.factor = factor

    def centred(self, x: Features) -> Features:
        """x, unchanged."""
        return x

    def fused(self, x: Features) -> Features:
        """factor · x."""
        return x * self.factor

    def scale(self, x: Features) -> Scale:
        """1 / factor."""
        return torch.full_like(x[..., :1], 1 / self.factor)

    def gradients(
        self,
        x: Float[Tensor, "*batch d_model"],
        W: Float[Tensor, "head d d_model"],
        y: Float[Tensor, "*batch head d"],
        by_y: Float[Tensor, "*batch head d"],
    ) -> Float[Tensor, "head *batch d_model"]:
        """factor · g, as the divisor does not depend on x."""
        return Norm.gradients(self, x, W, y, by_y) * self.factor
