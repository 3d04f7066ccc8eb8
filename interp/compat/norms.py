"""Norms with TransformerLens's names, and hook points for their divisor and their output."""

import torch
from torch import Tensor, nn

from interp.compat.hook_calls import call_hooks
from interp.compat.hook_point import HookPoint
from interp.compat.shared_weights import SharedWeights
from interp.compat.weight_views import flat
from interp.model import LayerNorm, ScaledNorm

HALF = (torch.float16, torch.bfloat16)
"""Types whose norms are computed in float32."""


class Norm(nn.Module):
    """A norm with ``w`` and ``b`` (as far as the core's has them) and its two hook points."""

    hook_scale: nn.Module
    hook_normalized: nn.Module

    def __init__(self, core: ScaledNorm, weights: SharedWeights) -> None:
        super().__init__()
        self._core = (core,)
        if core.gain is not None:
            weights.add(self, "w", core.gain, flat)
        if core.bias is not None:
            weights.add(self, "b", core.bias, flat)
        self.hook_scale, self.hook_normalized = HookPoint(), HookPoint()

    def forward(self, x: Tensor) -> Tensor:
        """The norm of x; ``hook_normalized`` is before ``w`` and ``b``."""
        dtype, x = x.dtype, x.float() if x.dtype in HALF else x
        x = x - x.mean(-1, keepdim=True) if isinstance(self.core, LayerNorm) else x
        scale = (x.square().mean(-1, keepdim=True) + self.core.eps).sqrt()
        normalized = x / call_hooks(self.hook_scale, scale)
        y = call_hooks(self.hook_normalized, normalized).to(dtype)
        w, b = self._parameters.get("w"), self._parameters.get("b")
        y = y if w is None else y * w
        return y if b is None else y + b

    @property
    def core(self) -> ScaledNorm:
        """The norm of the core."""
        return self._core[0]

    def apply_weights(self, normalized: Tensor) -> Tensor:
        """Multiply by the gain of the core and add its bias, in the shapes of the core."""
        core = self.core
        y = normalized if core.multiplier is None else normalized * core.multiplier
        return y if core.bias is None else y + core.bias
