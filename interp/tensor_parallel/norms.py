"""Norms of queries and keys whose heads are divided among ranks.

    centred(x) / scale · gain + bias          of the heads of this rank
    scale = √(mean of centred(x)² + eps)      over each head, or over the heads of all ranks

A norm over all heads needs one number of each token from every rank, and two if it subtracts the
mean.
"""

import torch
from torch import Tensor

from interp.model import ClippedNorm, LayerNorm, Norm, ScaledNorm, Tap, untouched
from interp.tensor_parallel.ranks import Ranks, Shares


def norm_of_share(norm: Norm, heads: Shares, ranks: Ranks) -> Norm:
    """The norm of this rank's heads."""
    if isinstance(norm, ClippedNorm):
        of_share = norm_of_share(norm.norm, heads, ranks)
        return ClippedNorm(of_share, norm.clip.bound, norm.points)
    if not isinstance(norm, ScaledNorm):
        return norm
    return (NormOverRanks if is_joint(norm) else NormOfHeads)(norm, heads, ranks)


def is_joint(norm: Norm) -> bool:
    """Whether a norm of queries or keys is over all heads together."""
    before_clip = norm.norm if isinstance(norm, ClippedNorm) else norm
    return isinstance(before_clip, ScaledNorm) and len(before_clip.axes) > 1


class NormOfHeads(Norm):
    """A norm over each head, of the heads of this rank.

    Args:
        whole: the norm of all heads.
        heads: the heads of each rank.
        ranks: the ranks.
    """

    def __init__(self, whole: ScaledNorm, heads: Shares, ranks: Ranks) -> None:
        super().__init__()
        self.whole, self.heads, self.ranks, self.points = whole, heads, ranks, whole.points

    def forward(self, x: Tensor, tap: Tap = untouched) -> Tensor:
        """The norm of x, ``[batch pos head d_head]`` of this rank's heads."""
        return tap(self.points.normalized, self.output_of(x, tap))

    def output_of(self, x: Tensor, tap: Tap) -> Tensor:
        """The norm of x, computed in float32 if x is in half precision."""
        half = x.dtype in (torch.float16, torch.bfloat16)
        wide = x.float() if half else x
        subtracts_mean = isinstance(self.whole, LayerNorm)
        centred = wide - self.on_heads(self.mean(wide)) if subtracts_mean else wide
        scale = (self.mean(centred.square()) + self.whole.eps).sqrt()
        formed = scale.to(x.dtype)
        edited = tap(self.points.scale, formed)
        y = centred / self.on_heads(scale if edited is formed else edited.to(scale))
        gain, bias = (self._of_heads(w) for w in (self.whole.multiplier, self.whole.bias))
        y = y if gain is None else y * gain
        return (y if bias is None else y + bias).to(x.dtype)

    def mean(self, x: Tensor) -> Tensor:
        """The mean of what is normalized together, ``[batch pos head one]``."""
        return x.mean(-1, keepdim=True)

    def on_heads(self, mean: Tensor) -> Tensor:
        """A mean or a scale, as the heads of this rank read it."""
        return mean

    def _of_heads(self, weight: Tensor | None) -> Tensor | None:
        """A weight ``[d_head]`` of all heads, or the rows of these heads of ``[head d_head]``."""
        if weight is None:
            return None
        whole = self.ranks.copied(weight)
        return whole if whole.ndim == 1 else self.ranks.select(whole, self.heads, 0)


class NormOverRanks(NormOfHeads):
    """A norm over the heads of all ranks together."""

    def mean(self, x: Tensor) -> Tensor:
        """The mean over all heads, ``[batch pos one one]``; copies of a head count once."""
        counted = self.heads.is_source(self.ranks.rank).to(x)[:, None]
        total = self.ranks.summed((x * counted).sum((-2, -1), keepdim=True))
        return total / (self.heads.total * x.shape[-1])

    def on_heads(self, mean: Tensor) -> Tensor:
        """The same number, whose gradient is the sum of those of all ranks."""
        return self.ranks.copied(mean)
