"""The softmax of attention: each row of scores becomes weights on keys.

    A_ij = exp(s_ij) / Σ_k exp(s_ik)                     rows sum to one
    A_ij = exp(s_ij) / (exp(c_h) + Σ_k exp(s_ik))        with a sink c_h for each head

A sink is a learned score that belongs to no key: a head that finds nothing to attend to gives it
most of its weight and writes little (Miller 2023, "Attention is off by one"; GPT-OSS, 2025).
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.model.shapes import Matrix


class Softmax(nn.Module):
    """exp(s) / Σ_keys exp(s), row by row; the base class of :class:`SinkSoftmax`."""

    is_fused = True
    """Whether fused attention computes it."""

    def forward(self, scores: Matrix, *, in_place: bool = False) -> Matrix:
        """The weights on keys, computed in float32 for half-precision scores."""
        return softmax_rows(scores, in_place=in_place)


class SinkSoftmax(Softmax):
    """exp(s) / (exp(sink) + Σ_keys exp(s)), row by row, with a sink for each head."""

    is_fused = False

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.sinks = nn.Parameter(torch.zeros(n_heads))

    def forward(self, scores: Matrix, *, in_place: bool = False) -> Matrix:  # noqa: ARG002
        """The weights on keys."""
        return softmax_rows(torch.cat([scores, self.column(scores)], -1))[..., :-1]

    def column(self, scores: Matrix) -> Float[Tensor, "batch head query one"]:
        """The sinks as one more column of scores."""
        batch, _, n_query, _ = scores.shape
        return self.sinks.to(scores.dtype)[:, None, None].expand(batch, -1, n_query, 1)


def softmax_of(n_heads: int, *, sinks: bool) -> Softmax:
    """The softmax of a configuration."""
    return SinkSoftmax(n_heads) if sinks else Softmax()


def softmax_rows(scores: Matrix, *, in_place: bool = False) -> Matrix:
    """exp(s) / Σ_keys exp(s), row by row, computed in float32 for half-precision scores."""
    if scores.dtype in (torch.float16, torch.bfloat16):
        return scores.softmax(-1, dtype=torch.float32).to(scores.dtype)
    return torch.softmax(scores, -1, out=scores) if in_place else scores.softmax(-1)
