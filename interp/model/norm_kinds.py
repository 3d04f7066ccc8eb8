"""Rarer norms, and the norm that a configuration asks for: of a stream, or of queries or keys.

Gemma's factor is 1 + gain. Queries and keys are normalized over each head or all heads together
(Henry et al. 2020), and possibly clipped.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.config import AttentionConfig, NormConfig
from interp.model.norm import Features, LayerNorm, Norm, NormPoints, RMSNorm, Scale, ScaledNorm
from interp.model.recipe import Layout, Reader, Recipe, owned
from interp.model.tap import Tap, untouched
from interp.points import Place


class EachHeadLayerNorm(LayerNorm):
    """LayerNorm over each head, with a gain and a bias per head (Cohere, StableLM 2)."""

    def __init__(self, config: NormConfig, shape: tuple[int, ...], points: NormPoints) -> None:
        super().__init__(config, shape, points)
        self.axes = (-1,)

    def fused(self, x: Features) -> Features:
        """LayerNorm of each head in one kernel, then the gains and biases."""
        y = F.layer_norm(x, self.shape[1:], None, None, self.eps)
        y = y if self.gain is None else y * self.gain
        return y if self.bias is None else y + self.bias


class OffsetRMSNorm(RMSNorm):
    """RMSNorm whose factor is 1 + gain (Gemma).

    In half precision it is computed in float32: rounding 1 + gain would lose most of the gain.
    """

    def __init__(self, config: NormConfig, shape: tuple[int, ...], points: NormPoints) -> None:
        super().__init__(config, shape, points)
        self.gain: nn.Parameter = nn.Parameter(torch.zeros(shape))

    @property
    def multiplier(self) -> Tensor:
        """1 + gain."""
        gain = self.gain
        return 1.0 + (gain.float() if gain.dtype in (torch.float16, torch.bfloat16) else gain)

    def fused(self, x: Features) -> Features:
        """RMSNorm in one kernel."""
        gain = self.multiplier
        return F.rms_norm(x.to(gain.dtype), self.shape, gain, self.eps).to(x.dtype)

    def by_scale(self, x: Features, scale: Scale) -> Features:
        """The norm of x with a given divisor."""
        gain = self.multiplier
        return (x.to(gain.dtype) / scale.to(gain.dtype) * gain).to(x.dtype)


@dataclass(frozen=True)
class Clip:
    """x ↦ max(−bound, min(bound, x)) (``clip_qkv`` of MPT and OLMo)."""

    bound: float

    def __call__(self, x: Tensor) -> Tensor:
        """``x.clamp(-bound, bound)``."""
        bound = min(self.bound, torch.finfo(x.dtype).max)  # a larger one has no value of this dtype
        return x.clamp(-bound, bound)


class ClippedNorm(Norm):
    """x ↦ clip(norm(x)), where the norm may be the identity.

    Queries and keys are clipped after their norm and before they are rotated; the clipped tensors
    are at the points ``q_normalized`` and ``k_normalized``.
    """

    def __init__(self, norm: Norm, bound: float, points: NormPoints) -> None:
        super().__init__()
        self.norm, self.clip, self.points = norm, Clip(bound), points

    def forward(self, x: Features, tap: Tap = untouched) -> Features:
        """The norm of x, clipped."""
        return tap(self.points.normalized, self.clip(self.norm.output_of(x, tap)))

    def layout(self, source: Place, norm: str | None = None) -> Layout:
        """The places of the norm; the output is clipped."""
        before = owned("norm", self.norm.layout(source, norm))
        output = Place(self.points.normalized, norm=norm)

        def clipped(part: ClippedNorm, of: Reader) -> Tensor:
            return part.clip(part.norm.fused(of(source.point, source.norm)))

        return {**before, output: Recipe(clipped, (source,))}


def norm_of(config: NormConfig, *shape: int, points: NormPoints | None = None) -> Norm:
    """The norm of a configuration, over axes of this ``shape``."""
    if config.kind == "none":
        return Norm()
    kinds: dict[str, Callable[[NormConfig, tuple[int, ...], NormPoints], ScaledNorm]]
    kinds = {"layernorm": LayerNorm, "rmsnorm": RMSNorm}
    kind = OffsetRMSNorm if config.unit_offset else kinds[config.kind]
    return kind(config, shape, points or NormPoints())


def head_norm(config: AttentionConfig, n: int, points: NormPoints) -> Norm:
    """The norm of queries or keys, over each head or all ``n`` together, and possibly clipped."""
    if config.qk_norm is None:
        norm = Norm()
    elif config.qk_norm_over == "each_head":
        norm = EachHeadLayerNorm(config.qk_norm, (n, config.d_head), points)
    else:
        shape = (config.d_head,) if config.qk_norm_over == "head" else (n, config.d_head)
        norm = norm_of(config.qk_norm, *shape, points=points)
    return norm if config.clip is None else ClippedNorm(norm, config.clip, points)
