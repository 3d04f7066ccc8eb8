"""Mean pooling: one vector for an image, the norm of the mean of its patches (BEiT).

    pooled = norm(mean_i x_i)        over the patches i of the last stream x

A model with a last norm has this vector at position 0, in place of the norm of CLS, so that its
logits there are those of the image. A model without one computes it by ``model.pooler``.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.model.norm import Norm, ScaledNorm
from interp.model.recipe import Layout, Reader, Recipe
from interp.model.shapes import Stream
from interp.model.tap import Tap, untouched
from interp.points import Place


class MeanPooledNorm(Norm):
    """x ↦ norm(x′), where x′ is x with the mean of the patches at position 0.

    Args:
        norm: the norm.
        n_special: number of special tokens before the patches, at least 1.
    """

    mixes_positions = True

    def __init__(self, norm: ScaledNorm, n_special: int) -> None:
        super().__init__()
        self.norm, self.n_special = norm, n_special

    def forward(self, x: Stream, tap: Tap = untouched) -> Stream:
        """norm(x′)."""
        return self.norm(self.pooled(x), tap)

    def pooled(self, x: Stream) -> Stream:
        """x′: x with the mean of the patches at position 0."""
        return torch.cat([x[:, self.n_special :].mean(1, keepdim=True), x[:, 1:]], dim=1)

    def layout(self, source: Place, norm: str | None = None) -> Layout:
        """The places of the norm, as functions of ``source``."""
        points = self.norm.points

        def scale(part: MeanPooledNorm, of: Reader) -> Tensor:
            return part.norm.scale(part.pooled(of(source.point, source.norm)))

        def normalized(part: MeanPooledNorm, of: Reader) -> Tensor:
            return part.norm.fused(part.pooled(of(source.point, source.norm)))

        return {
            Place(points.scale, norm=norm): Recipe(scale, (source,), absent_when_fused=True),
            Place(points.normalized, norm=norm): Recipe(normalized, (source,)),
        }


class MeanPooler(nn.Module):
    """x ↦ norm(mean_i x_i): one vector per image, from the patches of its last stream.

    It is not part of the forward: call ``model.pooler(stream)``, where the stream is the output of
    a model without a head.

    Args:
        norm: the norm.
        n_special: number of special tokens before the patches.
    """

    def __init__(self, norm: Norm, n_special: int) -> None:
        super().__init__()
        self.norm, self.n_special = norm, n_special

    def forward(self, x: Stream) -> Float[Tensor, "batch d_model"]:
        """One vector for each image."""
        return self.norm(x[:, self.n_special :].mean(1, keepdim=True))[:, 0]
