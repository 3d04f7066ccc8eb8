"""The same model in another basis of its heads: W_Q, W_K and W_V, W_O times matrices of GL(d_head).

W_V ↦ W_V M,  W_O ↦ M⁻¹ W_O,  W_Q ↦ W_Q N,  W_K ↦ W_K N⁻ᵀ,  and the biases with them
"""

import torch
from architectures import build_new
from torch import Tensor

from interp import Transformer
from interp.model.attention.attention import Attention
from interp.model.positions.rotary import Rotary


@torch.no_grad()
def in_another_basis(model: Transformer, seed: int = 0) -> Transformer:
    """A copy; queries and keys are changed where they are neither rotated nor normalized."""
    generator = torch.Generator().manual_seed(seed)
    new = build_new(model.config)
    new.load_state_dict(model.state_dict())
    for attn in (part for part in new.modules() if isinstance(part, Attention)):
        group = attn.n_heads // attn.kv_heads
        M, N = (_invertible(attn.kv_heads, attn.d_head, generator) for _ in range(2))
        _multiply(attn.W_V, attn.b_v, M)
        attn.W_O.copy_(torch.linalg.inv(M).repeat_interleave(group, 0) @ attn.W_O)
        if isinstance(attn.positions, Rotary) or attn.has_qk_norm:
            continue
        _multiply(attn.W_K, attn.b_k, torch.linalg.inv(N).mT)
        _multiply(attn.W_Q, attn.b_q, N.repeat_interleave(group, 0))
    return new


def _multiply(W: Tensor, b: Tensor | None, by: Tensor) -> None:
    W.copy_(W @ by)
    if b is not None:
        b.copy_((b.view(len(by), 1, -1) @ by).flatten())


def _invertible(n: int, d: int, generator: torch.Generator) -> Tensor:
    noise = torch.randn(n, d, d, generator=generator, dtype=torch.float64)
    return torch.eye(d, dtype=torch.float64) + 0.4 * noise
