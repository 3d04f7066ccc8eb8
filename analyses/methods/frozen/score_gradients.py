"""What the scores of a query do for a head's output: gradients integrated from equal content.

    Λ_j = ∫₀¹ ∂c(t)/∂s_j dt        c(t) = Σ_j A_j(t) c_j,   A(t) = softmax(cap(t·s) + M)

s are the scores of one query by content, M the mask and the position bias, and c_j what the value
of key j is worth. At t = 0 the head attends by mask and position alone. By the fundamental theorem,

    Σ_j Λ_j s_j = c(1) − c(0)

so a saturated softmax, whose gradient is 0, gets its whole effect (Sundararajan et al. 2017,
"Axiomatic Attribution for Deep Networks").
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.model import Attention

POINTS = 12
"""Points of the quadrature in each interval."""
WIDTH = 4.0
"""Length of the first intervals, in units of 1 / (largest − smallest score)."""
EQUAL = 24
"""Number of intervals of equal length; later ones double, as little changes there."""


def integrated_gradients(
    attention: Attention,
    head: int,
    scores: Float[Tensor, " key"],
    bias: Float[Tensor, " key"],
    worth: Float[Tensor, "answer key"],
) -> Float[Tensor, "answer key"]:
    """Λ of one query of a head.

    Args:
        attention: the attention, whose soft-cap and softmax are applied.
        head: the head.
        scores: s, before soft-cap, mask and position bias.
        bias: M; −∞ at keys that the query may not attend to.
        worth: c, for one or several answers.
    """
    visible = scores[bias.isfinite()]
    times, weights = _quadrature(float(visible.max() - visible.min()))
    t, w = (torch.as_tensor(x, dtype=scores.dtype, device=scores.device) for x in (times, weights))
    capped = attention.soft_cap(t[:, None] * scores)
    pattern = pattern_of(attention, head, capped + bias)
    along = pattern * _slope(attention, capped)
    mean = pattern @ worth.mT
    return (w @ along) * worth - torch.einsum("t,ta,tk->ak", w, mean, along)


def pattern_of(
    attention: Attention, head: int, scores: Float[Tensor, "row key"]
) -> Float[Tensor, "row key"]:
    """Rows of the pattern of a head, from scores with mask and bias."""
    heads = attention.n_heads if attention.has_sinks else 1
    rows = scores[:, None, None].expand(-1, heads, -1, -1)
    return attention.softmax(rows)[:, head % heads, 0]


def _slope(attention: Attention, capped: Float[Tensor, "row key"]) -> Float[Tensor, "row key"]:
    """The derivative of the soft-cap, from its output."""
    cap = getattr(attention.soft_cap, "cap", None)
    return torch.ones_like(capped) if cap is None else 1 - (capped / cap).square()


def _quadrature(spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Points from 0 to 1 and their weights (Gauss–Legendre in intervals that fit the scores)."""
    width = WIDTH / max(spread, WIDTH)
    ends = [width * n for n in range(EQUAL + 1)]
    while ends[-1] < 1:
        ends.append(2 * ends[-1])
    edges = np.array([end for end in ends if end < 1] + [1.0])
    points, weights = np.polynomial.legendre.leggauss(POINTS)
    half = np.diff(edges)[:, None] / 2
    middle = (edges[1:] + edges[:-1])[:, None] / 2
    return (middle + half * points).ravel(), (half * weights).ravel()
