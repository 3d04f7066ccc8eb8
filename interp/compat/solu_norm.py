"""The norm after SoLU with its hook points (Elhage et al. 2022)."""

import torch
from torch import Tensor, nn

from interp.compat.config import HookedTransformerConfig
from interp.compat.hook_calls import call_hooks
from interp.compat.hook_point import HookPoint
from interp.compat.utils.activation_functions import solu


class ActivationNorm(nn.Module):
    """The LayerNorm after SoLU, whose parameters are not shared with the core."""

    hook_scale: nn.Module
    hook_normalized: nn.Module

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
        scale = (x.square().mean(-1, keepdim=True) + self.eps).sqrt()
        x = call_hooks(self.hook_normalized, x / call_hooks(self.hook_scale, scale))
        w, b = self._parameters.get("w"), self._parameters.get("b")
        return x if w is None or b is None else x * w + b


class SoluNorm:
    """SoLU followed by its norm, as the activation function of the core."""

    def __init__(self, norm: ActivationNorm) -> None:
        self.norm = norm

    def __call__(self, x: Tensor) -> Tensor:
        """The norm of x·softmax(x)."""
        return self.norm(solu(x))
