"""Weights of the heads, and their products S_h = W_V W_O and Y_h = W_Q W_Kᵀ.

Queries, keys and values are computed by one product, so their weights are stored as one matrix
``[heads·d_head, d_model]``; ``W_Q [head d_model d_head]`` and so on are views of it, which can be
written into (W_Q, W_K, W_V, W_O and the low-rank products as in Elhage et al. 2021).
"""

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from interp.config import AttentionConfig
from interp.errors import InvalidInput
from interp.integers import as_integer
from interp.linalg import LowRank
from interp.model.linear import Linear
from interp.model.mlp import bias_of, matrix
from interp.model.positions.scheme import PositionScheme


class HeadWeights(Linear):
    """The weights of one attention: stored for fast products, with views for each head.

    Attributes:
        has_qk_norm: whether queries and keys are normalized or clipped, so that they are not
            linear functions of the attention's input.
        has_clip: whether queries, keys and values are clipped.
    """

    def __init__(self, config: AttentionConfig, d_model: int, positions: PositionScheme) -> None:
        super().__init__()
        self.n_heads, self.kv_heads, self.d_head = config.n_heads, config.kv_heads, config.d_head
        self.positions = positions
        self.has_qk_norm = config.qk_norm is not None or config.clip is not None
        self.has_clip, self.has_sinks = config.clip is not None, config.sinks
        d_query, d_key = self.n_heads * self.d_head, self.kv_heads * self.d_head
        self.weight_qkv = matrix(d_query + 2 * d_key, d_model)
        self.weight_o = matrix(d_model, d_query)
        self.b_q = bias_of(d_query, config.bias_q)
        self.b_k = bias_of(d_key, config.bias_k)
        self.b_v = bias_of(d_key, config.bias_v)
        self.b_O = bias_of(d_model, config.bias_o)

    def S(self, head: int) -> LowRank:
        """W_V W_O of one head, d_model × d_model of rank ≤ d_head: the map from input to output.

        Raises:
            InvalidInput: values are clipped, so that the map is not linear.
        """
        if self.has_clip:
            raise InvalidInput(
                "This attention clips its values, so the output of a head is not a linear function "
                "of its input and there is no S; see W_V and W_O."
            )
        return LowRank(self.W_V[self.kv_head(head)], self.W_O[head])

    def Y(self, head: int, offset: int = 0) -> LowRank:
        """W_Q W_Kᵀ of one head, d_model × d_model of rank ≤ d_head: the bilinear form of scores.

        Args:
            head: index of the head.
            offset: query position minus key position; only matters with rotary positions.

        Raises:
            InvalidInput: queries and keys are normalized or clipped, so that scores are not a
                bilinear form.
        """
        if self.has_qk_norm:
            raise InvalidInput(
                f"This attention {'clips' if self.has_clip else 'normalizes'} its queries and "
                "keys, so its scores are not a bilinear form of its input and there is no Y; see "
                "W_Q, W_K and the points q_normalized, k_normalized."
            )
        W_K, W_Q = self.W_K[self.kv_head(head)], self.W_Q[head]
        here = torch.tensor(0, device=W_K.device)
        query, key = self.positions.rotated(W_Q, here), self.positions.rotated(W_K, here - offset)
        return LowRank(query, key.mT)

    @property
    def constant_output(self) -> Float[Tensor, " d_model"]:
        """Σ_h b_V W_O + b_O: the part of H(x) that does not depend on x (rows of A sum to one).

        If values are clipped, it is not a separate term of H(x), as b_V is added before clipping.

        Raises:
            InvalidInput: there are sinks, so that rows of A sum to less than one and the
                contribution of b_V depends on x.
        """
        if self.has_sinks and self.b_v is not None:
            raise InvalidInput(
                "This attention has sinks, so rows of its pattern do not sum to one and what b_V "
                "writes depends on the input; see bias_output(pattern)."
            )
        constant = self._value_bias_outputs().sum(0)
        return constant if self.b_O is None else constant + self.b_O

    def bias_output(
        self, pattern: Float[Tensor, "*batch head query key"]
    ) -> Float[Tensor, "*batch query d_model"]:
        """Σ_h (A_h 1) b_V W_O + b_O: the contribution of the biases, given A."""
        written = einsum(
            pattern.sum(-1),
            self._value_bias_outputs(),
            "... head query, head d_model -> ... query d_model",
        )
        return written if self.b_O is None else written + self.b_O

    def _value_bias_outputs(self) -> Float[Tensor, "head d_model"]:
        """b_V W_O of each head."""
        b_V = self.each_query(self.b_V, axis=0)
        return einsum(b_V, self.W_O, "head d, head d d_model -> head d_model")

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
            # An expanded zero, so that writing into a bias that does not exist raises an error.
            return self.weight_qkv.new_zeros(1, 1).expand(n, self.d_head)
        return bias.view(n, self.d_head)

    def kv_head(self, head: object) -> int:
        """The key/value head that a query head uses."""
        number = as_integer(head)
        if number is None or not 0 <= number < self.n_heads:
            raise InvalidInput(
                f"Head {repr(head)[:100]}: this attention has heads 0..{self.n_heads - 1}."
            )
        return number * self.kv_heads // self.n_heads

    def each_query(self, x: Tensor, axis: int = 2) -> Tensor:
        """Key/value heads, each repeated for the query heads that share it.

        ``x`` is returned unchanged if a tap has already repeated them.
        """
        if x.shape[axis] == self.n_heads:
            return x
        return x.repeat_interleave(self.n_heads // self.kv_heads, dim=axis)
