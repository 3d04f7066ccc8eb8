"""Norms: x ↦ (x − mean) / scale · gain + bias, with scale = √(variance + eps).

LayerNorm: Ba et al. 2016. RMSNorm does not subtract the mean: Zhang & Sennrich 2019. Other norms
are in :mod:`interp.model.norm_kinds`.
"""

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


class RMSNorm(ScaledNorm):
    """RMSNorm, which does not subtract the mean (Zhang & Sennrich 2019)."""

    def centred(self, x: Features) -> Features:
        """x, unchanged."""
        return x

    def fused(self, x: Features) -> Features:
        """RMSNorm in one kernel."""
        return F.rms_norm(x, self.shape, self.multiplier, self.eps)
