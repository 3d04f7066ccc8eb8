"""Averages of attention weights: entropy, mass on a set of keys, value-weighted attention.

    entropy_i = −Σ_j A_ij log A_ij        mass_i(K) = Σ_{j ∈ K} A_ij

(Clark et al. 2019, "What Does BERT Look At?"). Value-weighted attention is A_ij ‖v_j W_O‖, divided
by its sum over j (Kobayashi et al. 2020, "Attention is Not Only a Weight").
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.cache import Cache
from interp.errors import InvalidInput
from interp.metrics import at_least_float32
from interp.model import Attention, Context, Matrix
from interp.points import Place

Visible = Bool[Tensor, "batch query key"]
Each = Float[Tensor, "batch head query"]
MULTIPLIED_OUT = 2**22
"""The most numbers of x W_O that are computed for their norms."""


def pattern_at(cache: Cache, place: Place) -> Matrix:
    """The pattern at a place, in float32 or float64.

    Raises:
        InvalidInput: the pattern is not finite.
    """
    pattern = at_least_float32(cache[place])
    if not bool(pattern.sum().isfinite()):  # of weights from 0 to 1
        raise InvalidInput(f"{place} is not finite: the model computes NaN on these prompts.")
    return pattern


def visible_keys(attn: Attention, context: Context, n_key: int) -> Visible:
    """Which keys each query may attend to; a query at padding sees only itself.

    Args:
        attn: the attention.
        context: the context of the queries' stack.
        n_key: number of key columns.
    """
    shape = (*context.positions.shape, n_key)
    visible = attn.masking.visible(context)
    if visible is None:
        return torch.ones(shape, dtype=torch.bool, device=context.positions.device)
    return visible[:, 0].expand(shape)


def uniform_weights(visible: Visible, dtype: torch.dtype) -> Matrix:
    """Equal weights on all visible keys, with a head axis of size 1."""
    weights = visible.to(dtype)
    return (weights / weights.sum(-1, keepdim=True))[:, None]


def value_weights(pattern: Matrix, norms: Float[Tensor, "batch head key"]) -> Matrix:
    """A_ij ‖v_j W_O‖ / Σ_j A_ij ‖v_j W_O‖; zeros for queries where the sum is zero.

    Args:
        pattern: A.
        norms: ‖v_j W_O‖, as :func:`written_norms` gives them.
    """
    weights = pattern * norms[:, :, None, :]
    total = weights.sum(-1, keepdim=True)
    return weights / total.where(total > 0, 1)


def output_factor(attn: Attention) -> Float[Tensor, "head d_head rank"]:
    """Rᵀ of each head, where W_Oᵀ = Q R, so that ‖x Rᵀ‖ = ‖x W_O‖; in float32 or float64."""
    return torch.linalg.qr(at_least_float32(attn.W_O).mT, mode="r").R.mT


def written_norms(
    factor: Float[Tensor, "head d_head rank"], x: Float[Tensor, "batch pos head d_head"]
) -> Float[Tensor, "batch head pos"]:
    """‖x W_O‖ of each head, with d_head instead of d_model products a number.

    Args:
        factor: see :func:`output_factor`.
        x: values, or z.
    """
    return (at_least_float32(x).transpose(1, 2) @ factor).norm(dim=-1)


def output_norms(
    attn: Attention, x: Float[Tensor, "batch pos head d_head"]
) -> Float[Tensor, "batch head pos"]:
    """‖x W_O‖ of each head; of few positions without the factor, which takes longer."""
    if x.shape[:3].numel() * attn.W_O.shape[-1] > MULTIPLIED_OUT:
        return written_norms(output_factor(attn), x)
    return (at_least_float32(x).transpose(1, 2) @ at_least_float32(attn.W_O)).norm(dim=-1)


def entropy(weights: Matrix) -> Each:
    """−Σ_j A_ij log A_ij, in nats."""
    return torch.special.entr(weights).sum(-1)


def mass(weights: Matrix, cells: Bool[Tensor, "#batch #query key"]) -> Each:
    """Σ_j A_ij over the cells (i, j)."""
    return (weights * cells[:, None]).sum(-1)


def mean_over_queries(
    values: Each,
    counted: Bool[Tensor, "#batch #head query"],
) -> Float[Tensor, "batch head"]:
    """The mean over the queries that count; NaN where there are none."""
    return values.where(counted, 0).sum(-1) / counted.sum(-1)
