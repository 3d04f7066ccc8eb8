"""Changes of basis within a head, which depends only on the products W_Q W_Kᵀ and W_V W_O.

    W_Q → W_Q G,  W_K → W_K G⁻ᵀ        preserves W_Q W_Kᵀ
    W_V → W_V B,  W_O → B⁻¹ W_O        preserves W_V W_O

for all invertible G and B in GL(d_head) (Elhage et al. 2021). With rotary positions, scores are
q R(i − j) kᵀ, which are preserved only by those G that commute with every rotation: on each pair of
rotated dimensions, a rotation times a scalar; on the other dimensions, any invertible matrix.
Normalized queries and keys are not linear functions of the stream, so no G preserves their scores.
"""

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from interp.errors import InvalidInput
from interp.model import Attention, Rotary

Bases = Float[Tensor, "kv_head d_head d_head"]
"""One matrix per key/value head, which all heads of its group share."""


def free_bases(attn: Attention, generator: torch.Generator) -> Bases:
    """Random invertible matrices with singular values between ½ and 2.

    Raises:
        InvalidInput: the attention clips values.
    """
    if attn.has_clip:
        raise InvalidInput(
            "This attention clips queries, keys and values in the basis of each head, which is "
            "therefore fixed."
        )
    return _invertible(attn.kv_heads, attn.d_head, generator).to(attn.weight_qkv)


def score_bases(attn: Attention, generator: torch.Generator) -> Bases:
    """Random invertible matrices that commute with the rotations of the attention's positions.

    Raises:
        InvalidInput: the attention normalizes or clips queries and keys.
    """
    if attn.has_qk_norm:
        raise InvalidInput(
            f"This attention {'clips' if attn.has_clip else 'normalizes'} its queries and keys, so "
            "its scores don't depend on W_Q W_Kᵀ alone, and the basis of W_Q and W_K is fixed."
        )
    if not isinstance(attn.positions, Rotary):
        return free_bases(attn, generator)
    d = attn.positions.d or attn.d_head
    bases = _invertible(attn.kv_heads, attn.d_head, generator)
    bases[:, :d], bases[:, d:, :d] = 0.0, 0.0
    bases[:, :d, :d] = _commuting(attn.kv_heads, d, attn.positions, generator)
    return bases.to(attn.weight_qkv)


@torch.no_grad()
def change_basis(
    attn: Attention,
    *,
    query: Bases | None = None,
    key: Bases | None = None,
    value: Bases | None = None,
    output: Bases | None = None,
) -> None:
    """Multiply the weights of each head by matrices, in place.

    Args:
        attn: the attention, which is modified.
        query: W_Q → W_Q · query, and b_Q likewise; the heads of a group share one matrix.
        key: W_K → W_K · key, and b_K likewise.
        value: W_V → W_V · value, and b_V likewise.
        output: W_O → output · W_O.
    """
    weights = (attn.W_Q, attn.b_q), (attn.W_K, attn.b_k), (attn.W_V, attn.b_v)
    for (W, bias), basis in zip(weights, (query, key, value), strict=True):
        if basis is None:
            continue
        matrices = basis.repeat_interleave(len(W) // len(basis), 0)
        W.copy_(W @ matrices)
        if bias is not None:
            rows = bias.view(len(W), -1)
            rows.copy_(einsum(rows, matrices, "head d, head d e -> head e"))
    if output is not None:
        attn.W_O.copy_(attn.each_query(output, axis=0) @ attn.W_O)


def _invertible(n: int, d: int, generator: torch.Generator) -> Tensor:
    """U diag(s) V with random orthogonal U and V, and s between ½ and 2."""
    u, v = (torch.randn(n, d, d, generator=generator, dtype=torch.float64) for _ in range(2))
    s = 2 ** (2 * torch.rand(n, 1, d, generator=generator, dtype=torch.float64) - 1)
    return (torch.linalg.qr(u)[0] * s) @ torch.linalg.qr(v)[0]


def _commuting(n: int, d: int, rotary: Rotary, generator: torch.Generator) -> Tensor:
    """On each pair of dimensions, a rotation by a random angle times a scalar between ½ and 2."""
    angle, size = (torch.rand(n, 1, d // 2, generator=generator, dtype=torch.float64) for _ in "as")
    angle, size = 2 * torch.pi * angle, 2 ** (2 * size - 1)
    first, second = rotary.pairs.split(torch.eye(d, dtype=torch.float64))
    cos, sin = size * angle.cos(), size * angle.sin()
    return rotary.pairs.join(first * cos - second * sin, second * cos + first * sin)
