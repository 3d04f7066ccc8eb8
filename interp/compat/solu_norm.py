"""The norm after SoLU with its hook points, and both as one function (Elhage et al. 2022).

The façade calls the norm's hooks; the core computes the same without them, as its activation
function.
"""

import torch
from torch import Tensor, nn

from interp.compat.config import HookedTransformerConfig
from interp.compat.hook_calls import call_hooks
from interp.compat.hook_point import HookPoint
from interp.compat.utils.activation_functions import solu


class ActivationNorm(nn.Module):
    """The norm after SoLU, whose parameters are not shared with the core."""

    def __init__(self, cfg: HookedTransformerConfig, width: int) -> None:
        super().__init__()
        self.eps = cfg.eps
        if cfg.normalization_type == "LN":
            self.w = nn.Parameter(torch.ones(width, dtype=cfg.dtype))
            self.b = nn.Parameter(torch.zeros(width, dtype=cfg.dtype))
        self.hook_scale, self.hook_normalized = HookPoint(), HookPoint()

    def forward(self, x: Tensor) -> Tensor:
        """The LayerNorm of x over the neurons."""
        x = x - x.mean(-1, keepdim=True)
        x = x / call_hooks(self.hook_scale, self.scale(x))
        return self.apply_weights(call_hooks(self.hook_normalized, x))

    def without_hooks(self, x: Tensor) -> Tensor:
        """The same, without calling hooks."""
        x = x - x.mean(-1, keepdim=True)
        return self.apply_weights(x / self.scale(x))

    def scale(self, centred: Tensor) -> Tensor:
        """The divisor."""
        return (centred.square().mean(-1, keepdim=True) + self.eps).sqrt()

    def apply_weights(self, normalized: Tensor) -> Tensor:
        """Multiply by ``w`` and add ``b``, if there are any."""
        w, b = getattr(self, "w", None), getattr(self, "b", None)
        return normalized if w is None or b is None else normalized * w + b


class SoluNorm:
    """SoLU followed by its norm, as the activation function of the core."""

    def __init__(self, norm: ActivationNorm) -> None:
        self.norm = norm

    def __call__(self, x: Tensor) -> Tensor:
        """The norm of x·softmax(x)."""
        return self.norm.without_hooks(solu(x))
