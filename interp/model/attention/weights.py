"""What are the weights of the heads? S_h = W_V W_O (what moves) and Y_h = W_Q W_Kᵀ (where to).

Queries, keys and values come from one product, so their weights are stored as one matrix
``[heads·d_head, d_model]``; ``W_Q [head d_model d_head]`` and so on are views of it, through which
they can be set (Elhage et al. 2021 write W_Q, W_K, W_V, W_O and the two low-rank products).
"""

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from interp.config import AttentionConfig
from interp.errors import InvalidInput
from interp.linalg import Factored
from interp.model.linear import Linear
from interp.model.mlp import bias_of, matrix
from interp.model.positions.positions import Unturned


class HeadWeights(Linear):
    """The weights of one attention, stored for speed and shown as the mathematics has them."""

    def __init__(self, config: AttentionConfig, d_model: int, positions: Unturned) -> None:
        super().__init__()
        self.n_heads, self.kv_heads, self.d_head = config.n_heads, config.kv_heads, config.d_head
        self.positions = positions
        self.norms_heads = config.qk_norm is not None
        d_query, d_key = self.n_heads * self.d_head, self.kv_heads * self.d_head
        self.weight_qkv = matrix(d_query + 2 * d_key, d_model)
        self.weight_o = matrix(d_model, d_query)
        self.b_q = bias_of(d_query, config.bias_q)
        self.b_k = bias_of(d_key, config.bias_k)
        self.b_v = bias_of(d_key, config.bias_v)
        self.b_O = bias_of(d_model, config.bias_o)

    def S(self, head: int) -> Factored:
        """W_V W_O of one head: what moves, if it is attended to. d_model × d_model, factored."""
        return Factored(self.W_V[self._group(head)], self.W_O[head])

    def Y(self, head: int, offset: int = 0) -> Factored:
        """W_Q W_Kᵀ of one head: what attends to what. d_model × d_model, factored.

        Args:
            head: which head.
            offset: query position less key position; matters with rotary positions alone.

        Raises:
            InvalidInput: queries and keys are normed, so that no matrix says it.
        """
        if self.norms_heads:
            raise InvalidInput(
                "This attention norms its queries and keys, so its scores are no bilinear form of "
                "what it reads and there is no Y; see W_Q, W_K and the places q_normalized, "
                "k_normalized."
            )
        W_K, W_Q = self.W_K[self._group(head)], self.W_Q[head]
        here = torch.tensor(0, device=W_K.device)
        query, key = self.positions.turned(W_Q, here), self.positions.turned(W_K, here - offset)
        return Factored(query, key.mT)

    @property
    def written_always(self) -> Float[Tensor, " d_model"]:
        """Σ_h b_V W_O + b_O: what H writes whatever x, as the rows of A sum to one."""
        constant = einsum(
            self.each_query(self.b_V, axis=0), self.W_O, "head d, head d d_model -> d_model"
        )
        return constant if self.b_O is None else constant + self.b_O

    @property
    def W_Q(self) -> Float[Tensor, "head d_model d_head"]:
        """Query weights (a view)."""
        return self._rows(0, self.n_heads)

    @property
    def W_K(self) -> Float[Tensor, "kv_head d_model d_head"]:
        """Key weights (a view)."""
        return self._rows(self.n_heads, self.kv_heads)

    @property
    def W_V(self) -> Float[Tensor, "kv_head d_model d_head"]:
        """Value weights (a view)."""
        return self._rows(self.n_heads + self.kv_heads, self.kv_heads)

    @property
    def W_O(self) -> Float[Tensor, "head d_head d_model"]:
        """Output weights (a view)."""
        return rearrange(self.weight_o, "d_model (head d) -> head d d_model", head=self.n_heads)

    @property
    def b_Q(self) -> Float[Tensor, "head d_head"]:
        """Query biases, zeros if there are none."""
        return self._bias(self.b_q, self.n_heads)

    @property
    def b_K(self) -> Float[Tensor, "kv_head d_head"]:
        """Key biases, zeros if there are none."""
        return self._bias(self.b_k, self.kv_heads)

    @property
    def b_V(self) -> Float[Tensor, "kv_head d_head"]:
        """Value biases, zeros if there are none."""
        return self._bias(self.b_v, self.kv_heads)

    def _rows(self, first: int, n: int) -> Float[Tensor, "head d_model d_head"]:
        rows = self.weight_qkv[first * self.d_head : (first + n) * self.d_head]
        return rearrange(rows, "(head d) d_model -> head d_model d", head=n)

    def _bias(self, bias: Tensor | None, n: int) -> Float[Tensor, "head d_head"]:
        if bias is None:
            # One zero seen everywhere: to write into a bias that is not there raises.
            return self.weight_qkv.new_zeros(1, 1).expand(n, self.d_head)
        return bias.view(n, self.d_head)

    def joint_bias(self) -> Tensor | None:
        """The biases of queries, keys and values in a row; ``None`` if there are none at all."""
        if self.b_q is None and self.b_k is None and self.b_v is None:
            return None
        return torch.cat([self.b_Q.flatten(), self.b_K.flatten(), self.b_V.flatten()])

    def _group(self, head: int) -> int:
        if not 0 <= head < self.n_heads:
            raise InvalidInput(f"Head {head}: this attention has heads 0..{self.n_heads - 1}.")
        return head * self.kv_heads // self.n_heads

    def each_query(self, x: Tensor, axis: int = 2) -> Tensor:
        """Key/value heads, each repeated for the query heads that share it."""
        if self.kv_heads == self.n_heads:
            return x
        return x.repeat_interleave(self.n_heads // self.kv_heads, dim=axis)
