"""Clipping of queries, keys and values: x ↦ max(−c, min(c, x)) (``clip_qkv`` of MPT and OLMo).

Values are clipped when heads read them. Queries and keys are clipped after their norm and before
they are rotated; the clipped tensors are at the points ``q_normalized`` and ``k_normalized``.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from interp.model.norm import Features, Norm, NormPoints
from interp.model.recipe import Layout, Reader, Recipe, owned
from interp.model.tap import Tap, untouched
from interp.points import Place


class NoClip:
    """x ↦ x; the base class of :class:`Clip`."""

    def __call__(self, x: Tensor) -> Tensor:
        """x, unchanged."""
        return x


@dataclass(frozen=True)
class Clip(NoClip):
    """x ↦ max(−bound, min(bound, x))."""

    bound: float

    def __call__(self, x: Tensor) -> Tensor:
        """``x.clamp(-bound, bound)``."""
        bound = min(self.bound, torch.finfo(x.dtype).max)  # a larger one has no value of this dtype
        return x.clamp(-bound, bound)


def clip_of(bound: float | None) -> NoClip:
    """The clipping of a configuration; the identity if ``bound`` is ``None``."""
    return NoClip() if bound is None else Clip(bound)


class ClippedNorm(Norm):
    """x ↦ clip(norm(x)), where the norm may be the identity."""

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
