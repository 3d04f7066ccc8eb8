"""The weights of heads, with the linear parts of norms folded in.

    q = n·W_Q′ + b_Q′,   n = centred(x) / scale(x),   W_Q′ = centred(gain·W_Q),   b_Q′ = b_Q + b·W_Q

and likewise for keys and values, where gain and b belong to the norm that the head reads through.
W_O is followed by the norm of the attention's output, if a model has one. The divisors of norms
depend on the token and can't be folded; they change the size of what is read or written, but not
its direction (Elhage et al. 2021, "Handling layer normalization").
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.linalg import LowRank
from interp.metrics import at_least_float32
from interp.model import (
    Attention,
    BlockNorm,
    ClippedNorm,
    LayerNorm,
    Network,
    Norm,
    Rotary,
    ScaledNorm,
    Step,
    Stream,
)

Heads = Float[Tensor, "head d_model d_head"]


@dataclass(frozen=True, eq=False)
class FoldedHeads:
    """The weights of all heads of an attention, in float32 or float64.

    Attributes:
        attn: the attention.
        W_Q: W_Q′ with the gain of a norm of queries, without its divisor.
        W_K: W_K′ with the gain of a norm of keys, repeated for the heads that share it.
        W_V: W_V′, repeated for the heads that share it.
        W_O: W_O followed by the norm of the attention's output, without its divisor.
        b_Q: b_Q′, before a norm of queries.
    """

    attn: Attention
    W_Q: Heads
    W_K: Heads
    W_V: Heads
    W_O: Float[Tensor, "head d_head d_model"]
    b_Q: Float[Tensor, "head d_head"]  # noqa: N815 - as in the equation

    @classmethod
    @torch.no_grad()
    def of(cls, attn: Attention, step: Step, source: Norm) -> "FoldedHeads":
        """The heads of an attention.

        Args:
            attn: the attention.
            step: the step that it is in.
            source: the norm that keys and values are read through: that of the step, or the final
                norm of the encoder for cross-attention.
        """
        W_Q, constant = read_through(step.input_norm, attn.W_Q)
        W_K, W_V = (read_through(source, weight)[0] for weight in (attn.W_K, attn.W_V))
        return cls(
            attn,
            written_through(attn.q_norm, W_Q.movedim(0, 1)).movedim(1, 0),
            attn.each_query(written_through(attn.k_norm, W_K.movedim(0, 1)).movedim(1, 0), axis=0),
            attn.each_query(W_V, axis=0),
            written_through(norm_of(step.norms.output), at_least_float32(attn.W_O)),
            at_least_float32(attn.b_Q) + constant,
        )

    def Y(self, offset: int = 0) -> LowRank:
        """W_Q′ W_K′ᵀ of each head, ``[head d_model d_model]``.

        Args:
            offset: query position minus key position; only matters with rotary positions.
        """
        return LowRank(self.rotated(self.W_Q, 0), self.rotated(self.W_K, -offset).mT)

    def rotated(self, x: Float[Tensor, "*batch d_head"], position: int) -> Tensor:
        """Queries or keys rotated to a position."""
        return self.attn.positions.rotated(x, torch.tensor(position, device=x.device))


def rotates(model: Network) -> bool:
    """Whether any attention of a model has rotary positions."""
    parts = [part for part in model.modules() if isinstance(part, Attention)]
    return any(isinstance(part.positions, Rotary) for part in parts)


def read_through(norm: Norm, W: Heads) -> tuple[Heads, Float[Tensor, "head d_head"]]:
    """``(W′, c)`` with norm(x)·W = n·W′ + c, where n = centred(x) / scale(x)."""
    weights = at_least_float32(W)
    pulled, constant = norm.pull_back(weights.mT, weights.new_ones(1))
    return pulled.mT, weights.new_zeros(weights.mT.shape[:2]) if constant is None else constant


def written_through(norm: Norm, x: Float[Tensor, "*batch features"]) -> Tensor:
    """centred(x) · gain: the linear part of a norm of an output, without its divisor."""
    norm = norm.norm if isinstance(norm, ClippedNorm) else norm
    if not isinstance(norm, ScaledNorm):
        return x
    y, gain = norm.centred(x), norm.multiplier
    return y if gain is None else y * gain.to(y.dtype)


def normalized(norm: Norm, x: Stream) -> Stream:
    """n = centred(x) / scale(x), the input of folded weights."""
    return norm.centred(x) / norm.scale(x) if isinstance(norm, ScaledNorm) else x


def centred(norm: Norm, x: Float[Tensor, "*batch d_model"]) -> Tensor:
    """``x`` minus its mean, if the norm subtracts it."""
    return norm.centred(x) if isinstance(norm, ScaledNorm) else x


def dimensions_read(norm: Norm, d_model: int) -> int:
    """Number of dimensions of the stream that the norm preserves."""
    return d_model - isinstance(norm, LayerNorm)


def norm_of(step_norm: BlockNorm | None) -> Norm:
    """A norm of a step; the identity if there is none."""
    return Norm() if step_norm is None else step_norm.norm
