"""Norms with TransformerLens's names, and hook points for their divisor and their output.

The norm after SoLU (Elhage et al. 2022) has parameters of its own.
"""

import torch
from torch import Tensor, nn

from interp.compat.caching_hooks import call_hooks
from interp.compat.config import HookedTransformerConfig
from interp.compat.errors import InvalidInput
from interp.compat.hook_point import HookPoint
from interp.compat.shared_weights import SharedWeights
from interp.compat.utils.activation_functions import solu
from interp.compat.weight_views import flat
from interp.model import LayerNorm as CoreLayerNorm
from interp.model import ScaledNorm

HALF = (torch.float16, torch.bfloat16)
"""Types whose norms are computed in float32."""


def _normalized(norm: nn.Module, x: Tensor, eps: float, *, centred: bool) -> Tensor:
    """x divided by its root mean square, times ``w`` plus ``b``, with the hooks of the norm."""
    dtype, x = x.dtype, x.float() if x.dtype in HALF else x
    x = x - x.mean(-1, keepdim=True) if centred else x
    scale = (x.square().mean(-1, keepdim=True) + eps).sqrt()
    x = x / call_hooks(norm.get_submodule("hook_scale"), scale)
    parameters = dict(norm.named_parameters(recurse=False))
    y = call_hooks(norm.get_submodule("hook_normalized"), x).to(dtype)
    y = y * parameters["w"] if "w" in parameters else y
    return y + parameters["b"] if "b" in parameters else y


class Norm(nn.Module):
    """A norm with ``w`` and ``b`` (as far as the core's has them) and its two hook points."""

    hook_scale: nn.Module
    hook_normalized: nn.Module

    def __init__(self, core: ScaledNorm, weights: SharedWeights) -> None:
        super().__init__()
        self._core, self.eps = (core,), core.eps
        if core.gain is not None:
            weights.add(self, "w", core.gain, flat)
        if core.bias is not None:
            weights.add(self, "b", core.bias, flat)
        self.hook_scale, self.hook_normalized = HookPoint(), HookPoint()

    def forward(self, x: Tensor) -> Tensor:
        """The norm of x; ``hook_normalized`` is before ``w`` and ``b``."""
        return _normalized(self, x, self.eps, centred=isinstance(self.core, CoreLayerNorm))

    @property
    def core(self) -> ScaledNorm:
        """The norm of the core."""
        return self._core[0]

    def apply_weights(self, normalized: Tensor) -> Tensor:
        """Multiply by the gain of the core and add its bias, in the shapes of the core."""
        core = self.core
        y = normalized if core.multiplier is None else normalized * core.multiplier
        return y if core.bias is None else y + core.bias


class LayerNorm(Norm):
    """A LayerNorm with gain and bias."""


class LayerNormPre(Norm):
    """A LayerNorm whose gain and bias are folded into the next weights."""


class RMSNorm(Norm):
    """An RMSNorm with gain."""


class RMSNormPre(Norm):
    """An RMSNorm whose gain is folded into the next weights."""


def norm_of(core: object, weights: SharedWeights) -> Norm:
    """The façade of a norm of the core.

    Raises:
        InvalidInput: there is none at this place.
    """
    if not isinstance(core, ScaledNorm):
        raise InvalidInput("A norm was expected here, and the core has none.")
    centred, plain = isinstance(core, CoreLayerNorm), core.gain is None
    kinds = (LayerNormPre, RMSNormPre) if plain else (LayerNorm, RMSNorm)
    return kinds[0 if centred else 1](core, weights)


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
        return _normalized(self, x, self.eps, centred=True)


class SoluNorm:
    """SoLU followed by its norm, as the activation function of the core."""

    def __init__(self, norm: ActivationNorm) -> None:
        self.norm = norm

    def __call__(self, x: Tensor) -> Tensor:
        """The norm of x·softmax(x)."""
        return self.norm(solu(x))
