"""Norms with TransformerLens's names, and hook points for their divisor and their output."""

from torch import Tensor

from interp.compat.fixed_parts import FixedParts
from interp.compat.hook_calls import call_hooks
from interp.compat.hook_point import HookPoint
from interp.compat.shared_weights import SharedWeights
from interp.compat.weight_views import flat
from interp.model import LayerNorm, ScaledNorm


class Norm(FixedParts):
    """A norm with ``w`` and ``b`` (as far as the core's has them) and its two hook points."""

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
        x = x - x.mean(-1, keepdim=True) if isinstance(self.core, LayerNorm) else x
        scale = (x.square().mean(-1, keepdim=True) + self.core.eps).sqrt()
        normalized = x / call_hooks(self.hook_scale, scale)
        return self.apply_weights(call_hooks(self.hook_normalized, normalized))

    @property
    def core(self) -> ScaledNorm:
        """The norm of the core."""
        return self._core[0]

    def apply_weights(self, normalized: Tensor) -> Tensor:
        """Multiply by ``w`` and add ``b``."""
        core = self.core
        y = normalized if core.multiplier is None else normalized * core.multiplier
        return y if core.bias is None else y + core.bias
