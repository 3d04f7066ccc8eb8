"""Norms: x ↦ (x − mean) / scale · gain + bias, with scale = √(variance + eps).

LayerNorm: Ba et al. 2016. RMSNorm does not subtract the mean: Zhang & Sennrich 2019.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.config import NormConfig
from interp.model.recipe import Layout, Reader, Recipe, owned
from interp.model.tap import Tap, untouched
from interp.points import Place, Point

Features = Float[Tensor, "batch pos *features"]
"""The stream, or queries or keys by head; the last axes are normalized."""
Scale = Float[Tensor, "batch pos *ones"]


@dataclass(frozen=True)
class NormPoints:
    """The points of a norm; by default those of a block's norm."""

    scale: Point = Point.SCALE
    normalized: Point = Point.NORMALIZED


FINAL = NormPoints(Point.FINAL_SCALE, Point.FINAL_NORMALIZED)
EMBEDDED = NormPoints(Point.EMBED_SCALE, Point.EMBED_NORMALIZED)
HEAD = NormPoints(Point.HEAD_SCALE, Point.HEAD_NORMALIZED)
QUERIES = NormPoints(Point.Q_SCALE, Point.Q_NORMALIZED)
KEYS = NormPoints(Point.K_SCALE, Point.K_NORMALIZED)


class Norm(nn.Module):
    """No norm: x ↦ x; the base class of all norms."""

    points: NormPoints
    mixes_positions = False
    """Whether its output at a position depends on x at other positions."""

    def forward(self, x: Features, tap: Tap = untouched) -> Features:  # noqa: ARG002
        """x, unchanged."""
        return x

    def output_of(self, x: Features, tap: Tap) -> Features:  # noqa: ARG002
        """The norm of x; only its scale passes through ``tap``."""
        return x

    def fused(self, x: Features) -> Features:
        """x, unchanged."""
        return x

    def pull_back(
        self,
        w: Float[Tensor, "*batch d_model"],
        scale: Float[Tensor, "*#batch one"],  # noqa: ARG002
    ) -> tuple[Tensor, Tensor | None]:
        """``(w′, c)`` with norm(x)·w = x·w′ + c, where the norm's divisor is ``scale``.

        ``c`` is ``None`` if the norm has no bias.
        """
        return w, None

    def gradients(
        self,
        x: Float[Tensor, "*batch d_model"],  # noqa: ARG002
        W: Float[Tensor, "head d d_model"],
        y: Float[Tensor, "*batch head d"],  # noqa: ARG002
        by_y: Float[Tensor, "*batch head d"],
    ) -> Float[Tensor, "head *batch d_model"]:
        """Gradients with respect to x through each head of y = x·Wᵀ / scale, divisor included.

        Args:
            x: the input of the norm.
            W: weights pulled back with a divisor of 1 (see :meth:`pull_back`).
            y: the output for x, without terms that do not depend on x.
            by_y: the gradients with respect to y.
        """
        return einsum(by_y, W, "... head d, head d d_model -> head ... d_model")

    def layout(self, source: Place, norm: str | None = None) -> Layout:  # noqa: ARG002
        """No places."""
        return {}

    def output(self, source: Place, norm: str | None = None) -> Place:
        """The place of its output."""
        return [source, *self.layout(source, norm)][-1]


@dataclass(frozen=True, eq=False)
class BlockNorm:
    """A norm of a block with its name, which its places carry (two names may share one norm).

    Attributes:
        norm: the module.
        name: ``ln1``, ``ln2``, ….
    """

    norm: Norm
    name: str

    def __call__(self, x: Features, tap: Tap) -> Features:
        """The norm of x."""
        return self.norm(x, tap.scoped(norm=self.name))

    def layout(self, source: Place) -> Layout:
        """Its places."""
        return owned(self.name, self.norm.layout(source, self.name))

    def output(self, source: Place) -> Place:
        """The place of its output."""
        return self.norm.output(source, self.name)


class ScaledNorm(Norm):
    """x ↦ centred(x) / scale(x) · gain + bias, in one fused kernel unless the scale is edited.

    Args:
        config: configuration of the norm.
        shape: shape of the axes normalized together: ``(d_model,)``, ``(d_head,)`` or
            ``(head, d_head)``.
        points: points of its scale and its output.
    """

    def __init__(self, config: NormConfig, shape: tuple[int, ...], points: NormPoints) -> None:
        super().__init__()
        self.points, self.shape, self.eps = points, shape, config.eps
        self.axes = tuple(range(-len(shape), 0))
        self.gain = nn.Parameter(torch.ones(shape)) if config.gain else None
        self.bias = nn.Parameter(torch.zeros(shape)) if config.bias else None

    def forward(self, x: Features, tap: Tap = untouched) -> Features:
        """The norm of x."""
        return tap(self.points.normalized, self.output_of(x, tap))

    def output_of(self, x: Features, tap: Tap) -> Features:
        """The norm of x; only its scale passes through ``tap``."""
        if not tap.must_form(self.points.scale):
            return self.fused(x)
        formed = self.scale(x)
        scale = tap(self.points.scale, formed)
        # If the scale was only read, the result is still that of the fused kernel.
        return self.fused(x) if scale is formed else self.by_scale(x, scale)

    def centred(self, x: Features) -> Features:
        """``x`` minus its mean, if the norm subtracts it."""
        raise NotImplementedError

    def fused(self, x: Features) -> Features:
        """The whole norm in one kernel."""
        raise NotImplementedError

    def scale(self, x: Features) -> Scale:
        """√(mean of centred(x)² + eps)."""
        return (self.centred(x).square().mean(self.axes, keepdim=True) + self.eps).sqrt()

    def by_scale(self, x: Features, scale: Scale) -> Features:
        """The norm of x with a given divisor."""
        y, gain = self.centred(x) / scale, self.multiplier
        y = y if gain is None else y * gain
        return y if self.bias is None else y + self.bias

    def pull_back(
        self, w: Float[Tensor, "*batch d_model"], scale: Float[Tensor, "*#batch one"]
    ) -> tuple[Tensor, Tensor | None]:
        """w′ = centred(w · gain / scale), c = bias·w."""
        gain = self.multiplier
        pulled = self.centred((w if gain is None else w * gain) / scale)
        return pulled, None if self.bias is None else w @ self.bias.to(w.dtype)

    def gradients(
        self,
        x: Float[Tensor, "*batch d_model"],
        W: Float[Tensor, "head d d_model"],
        y: Float[Tensor, "*batch head d"],
        by_y: Float[Tensor, "*batch head d"],
    ) -> Float[Tensor, "head *batch d_model"]:
        """g − n · (n·g) / d_model, with n = centred(x) / scale and g = by_y·W / scale.

        n·g is y·by_y / scale: a sum over d_head, not over d_model.
        """
        scale = self.scale(x)
        n, by_y = self.centred(x) / scale, by_y / scale[..., None]
        g = super().gradients(x, W, y, by_y)
        along = einsum(y, by_y, "... head d, ... head d -> head ...") / x.shape[-1]
        return g.addcmul_(n, along[..., None], value=-1.0)

    @property
    def multiplier(self) -> Tensor | None:
        """The factor of the normalized x; ``None`` if there is none."""
        return self.gain

    def layout(self, source: Place, norm: str | None = None) -> Layout:
        """Its scale and its output, both functions of ``source``."""

        def scale(part: ScaledNorm, of: Reader) -> Tensor:
            return part.scale(of(source.point, source.norm))

        def normalized(part: ScaledNorm, of: Reader) -> Tensor:
            return part.fused(of(source.point, source.norm))

        return {
            Place(self.points.scale, norm=norm): Recipe(scale, (source,), absent_when_fused=True),
            Place(self.points.normalized, norm=norm): Recipe(normalized, (source,)),
        }


class LayerNorm(ScaledNorm):
    """LayerNorm, which subtracts the mean (Ba et al. 2016)."""

    def centred(self, x: Features) -> Features:
        """``x - mean(x)``."""
        return x - x.mean(self.axes, keepdim=True)

    def fused(self, x: Features) -> Features:
        """LayerNorm in one kernel."""
        return F.layer_norm(x, self.shape, self.gain, self.bias, self.eps)


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


class RMSNorm(ScaledNorm):
    """RMSNorm, which does not subtract the mean (Zhang & Sennrich 2019)."""

    def centred(self, x: Features) -> Features:
        """x, unchanged."""
        return x

    def fused(self, x: Features) -> Features:
        """RMSNorm in one kernel."""
        return F.rms_norm(x, self.shape, self.multiplier, self.eps)


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


def norm_of(config: NormConfig, *shape: int, points: NormPoints | None = None) -> Norm:
    """The norm of a configuration, over axes of this ``shape``."""
    if config.kind == "none":
        return Norm()
    kinds: dict[str, Callable[[NormConfig, tuple[int, ...], NormPoints], ScaledNorm]]
    kinds = {"layernorm": LayerNorm, "rmsnorm": RMSNorm}
    kind = OffsetRMSNorm if config.unit_offset else kinds[config.kind]
    return kind(config, shape, points or NormPoints())


class ConstantFactor(ScaledNorm):
    """x ↦ factor · x, as a norm whose divisor, 1 / factor, does not depend on x (Granite, 2024).

    As a norm of a sub-layer's output, it needs no special case in any other part of the model.

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


class NoClip:
    """x ↦ x: values that are not clipped."""

    def __call__(self, x: Tensor) -> Tensor:
        """x, unchanged."""
        return x


@dataclass(frozen=True)
class Clip:
    """x ↦ max(−bound, min(bound, x)) (``clip_qkv`` of MPT and OLMo)."""

    bound: float

    def __call__(self, x: Tensor) -> Tensor:
        """``x.clamp(-bound, bound)``."""
        bound = min(self.bound, torch.finfo(x.dtype).max)  # a larger one has no value of this dtype
        return x.clamp(-bound, bound)


def clip_of(bound: float | None) -> Clip | NoClip:
    """The clipping of a configuration; the identity if ``bound`` is ``None``."""
    return NoClip() if bound is None else Clip(bound)


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
