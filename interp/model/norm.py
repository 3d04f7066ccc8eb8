"""What does a norm do? x ↦ (x − mean) / scale · gain + bias, with scale = √(variance + eps).

LayerNorm: Ba et al. 2016. RMSNorm leaves the mean alone: Zhang & Sennrich 2019.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.config import NormConfig
from interp.model.recipe import Layout, Reader, Recipe
from interp.points import Place, Point
from interp.tap import Tap, untouched

Stream = Float[Tensor, "batch pos d_model"]
Scale = Float[Tensor, "batch pos one"]


@dataclass(frozen=True)
class NormPoints:
    """Which places a norm taps: those of a block's norm, or of the last one."""

    scale: Point = Point.SCALE
    normalized: Point = Point.NORMALIZED


FINAL = NormPoints(Point.FINAL_SCALE, Point.FINAL_NORMALIZED)


class Norm(nn.Module):
    """No norm: x ↦ x. The parent of those that there are."""

    points: NormPoints

    def forward(self, x: Stream, tap: Tap = untouched) -> Stream:  # noqa: ARG002
        """x, as it is."""
        return x

    def layout(self, source: Place, norm: str | None = None) -> Layout:  # noqa: ARG002
        """No places of its own."""
        return {}


class ScaledNorm(Norm):
    """x ↦ centred(x) / scale(x) · gain + bias, in one fused kernel unless the scale is wanted."""

    def __init__(self, config: NormConfig, d_model: int, points: NormPoints) -> None:
        super().__init__()
        self.points = points
        self.eps = config.eps
        self.gain = nn.Parameter(torch.ones(d_model)) if config.gain else None
        self.bias = nn.Parameter(torch.zeros(d_model)) if config.bias else None

    def forward(self, x: Stream, tap: Tap = untouched) -> Stream:
        """The norm of x."""
        return tap(self.points.normalized, self._normalize(x, tap))

    def _normalize(self, x: Stream, tap: Tap) -> Stream:
        if not tap.forms(self.points.scale):
            return self.fused(x)
        formed = self.scale(x)
        scale = tap(self.points.scale, formed)
        # Who only looks gets the fused kernel's numbers; another scale, or its gradient, needs it.
        return self.fused(x) if scale is formed else self.by_scale(x, scale)

    def centred(self, x: Stream) -> Stream:
        """X less what the norm subtracts."""
        raise NotImplementedError

    def fused(self, x: Stream) -> Stream:
        """The whole norm in one kernel."""
        raise NotImplementedError

    def scale(self, x: Stream) -> Scale:
        """√(mean square of the centred x + eps)."""
        return (self.centred(x).square().mean(-1, keepdim=True) + self.eps).sqrt()

    def by_scale(self, x: Stream, scale: Scale) -> Stream:
        """The norm with a given divisor."""
        y = self.centred(x) / scale
        y = y if self.gain is None else y * self.gain
        return y if self.bias is None else y + self.bias

    def layout(self, source: Place, norm: str | None = None) -> Layout:
        """Its scale and its output, both from ``source``."""

        def scale(part: ScaledNorm, of: Reader) -> Tensor:
            return part.scale(of(source.point, source.norm))

        def normalized(part: ScaledNorm, of: Reader) -> Tensor:
            return part.fused(of(source.point, source.norm))

        return {
            Place(self.points.scale, norm=norm): Recipe(scale, (source,), on_demand=True),
            Place(self.points.normalized, norm=norm): Recipe(normalized, (source,)),
        }


class LayerNorm(ScaledNorm):
    """Centred by the mean."""

    def centred(self, x: Stream) -> Stream:
        """X − mean(x)."""
        return x - x.mean(-1, keepdim=True)

    def fused(self, x: Stream) -> Stream:
        """LayerNorm in one kernel."""
        return F.layer_norm(x, x.shape[-1:], self.gain, self.bias, self.eps)


class RMSNorm(ScaledNorm):
    """Not centred."""

    def centred(self, x: Stream) -> Stream:
        """x, as it is."""
        return x

    def fused(self, x: Stream) -> Stream:
        """RMSNorm in one kernel."""
        return F.rms_norm(x, x.shape[-1:], self.gain, self.eps)


def norm_of(config: NormConfig, d_model: int, points: NormPoints | None = None) -> Norm:
    """The norm that ``config`` describes."""
    match config.kind:
        case "layernorm":
            return LayerNorm(config, d_model, points or NormPoints())
        case "rmsnorm":
            return RMSNorm(config, d_model, points or NormPoints())
        case "none":
            return Norm()
