"""The queries, keys, values and patterns of one attention in one run, and their linear parts.

Queries and keys are rotated, and may be normalized; with the divisors of these norms fixed, both
are linear functions (plus constants) of what the attention projects.
"""

from collections.abc import Callable
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.methods.frozen.score_gradients import integrated_gradients
from interp.model import Attention, Context, Norm, ScaledNorm, untouched

Queries = Float[Tensor, "pos head d_head"]
Keys = Float[Tensor, "pos kv_head d_head"]
ByAnswer = Float[Tensor, "answer pos heads d_head"]
"""Directions of queries, keys or values, for one or several answers."""


class FrozenAttention:
    """One attention in the run of one prompt without padding.

    Args:
        attention: the module.
        q: queries as they are projected, before norm and rotation.
        k: keys, likewise.
        v: values.
        pattern: the pattern of each head.
    """

    def __init__(
        self,
        attention: Attention,
        q: Queries,
        k: Keys,
        v: Keys,
        pattern: Float[Tensor, "head query key"],
    ) -> None:
        self.attention, self.pattern = attention, pattern
        self.values = attention.values(v[None])[0]
        self._q, self._k = q, k
        self._context = Context.plain(q[None, :, 0])
        self._query = _fixed(attention.q_norm, q)
        self._key = _fixed(attention.k_norm, k)

    def rotated_query(self, q: Queries) -> Queries:
        """Queries as scores read them, with the divisor of their norm fixed."""
        return self.attention.positions.query(self._query(q[None]), self._context, untouched)[0]

    def rotated_key(self, k: Keys) -> Keys:
        """Keys as scores read them, likewise."""
        return self.attention.positions.key(self._key(k[None]), self._context, untouched)[0]

    @cached_property
    def q(self) -> Queries:
        """Queries as scores read them."""
        return self.rotated_query(self._q)

    @cached_property
    def k(self) -> Queries:
        """Keys as scores read them, repeated for the heads that share them."""
        return self.attention.each_query(self.rotated_key(self._k), axis=1)

    @cached_property
    def bias(self) -> Float[Tensor, "head query key"]:
        """The mask and the position bias, which are added to scores."""
        return self.attention.masking.add(torch.zeros_like(self.pattern)[None], self._context)[0]

    def scores(self, head: int, query: int) -> Float[Tensor, " key"]:
        """q·k / scale of one query, before soft-cap, mask and position bias."""
        return self.k[:, head] @ self.q[query, head] / self.attention.divisor

    def through_values(
        self, head: int, query: int, along: Float[Tensor, "answer d_head"]
    ) -> ByAnswer:
        """z·along of one query as a direction of the values of all positions."""
        by_value = along.new_zeros(len(along), *self._k.shape)
        by_value[:, :, self.attention.kv_head(head)] = (
            self.pattern[head, query][:, None] * along[:, None]
        )
        return by_value

    def by_scores(
        self, head: int, query: int, along: Float[Tensor, "answer d_head"]
    ) -> Float[Tensor, "answer key"]:
        """Λ of one query, where z counts along a direction."""
        worth = along @ self.values[:, head].mT
        scores, bias = self.scores(head, query), self.bias[head, query]
        return integrated_gradients(self.attention, head, scores, bias, worth)

    def through_query(
        self, head: int, query: int, by_scores: Float[Tensor, "answer key"]
    ) -> tuple[ByAnswer, Float[Tensor, " answer"]]:
        """Σ_j Λ_j s_j as a direction of the projected queries, and a constant."""
        by_query = self.q.new_zeros(len(by_scores), *self.q.shape)
        by_query[:, query, head] = by_scores @ self.k[:, head] / self.attention.divisor
        return _pulled(self.rotated_query, self._q, by_query)

    def through_keys(
        self, head: int, query: int, by_scores: Float[Tensor, "answer key"]
    ) -> tuple[ByAnswer, Float[Tensor, " answer"]]:
        """The same as a direction of the projected keys of all positions, and a constant."""
        shared = self.attention.kv_head(head)
        by_key = self._k.new_zeros(len(by_scores), *self._k.shape)
        by_key[:, :, shared] = by_scores[..., None] * self.q[query, head] / self.attention.divisor
        return _pulled(self.rotated_key, self._k, by_key)

    def score_with(
        self, k: Float[Tensor, " d_head"], head: int, query: int, key: int
    ) -> Float[Tensor, ""]:
        """The score of one query and key if the key is projected otherwise."""
        projected = self._k.clone()
        projected[key, self.attention.kv_head(head)] = k
        f = self.attention
        rotated = f.positions.key(f.k_norm(projected[None]), self._context, untouched)
        score = f.each_query(rotated)[0, key, head] @ self.q[query, head] / f.divisor
        return f.soft_cap(score) + self.bias[head, query, key]


def _fixed(norm: Norm, x: Tensor) -> Callable[[Tensor], Tensor]:
    """A norm with its divisor fixed at that of ``x``."""
    if not isinstance(norm, ScaledNorm):
        return lambda y: y
    scale = norm.scale(x[None])
    return lambda y: norm.by_scale(y, scale)


def _pulled(
    function: Callable[[Tensor], Tensor], x: Tensor, by_output: ByAnswer
) -> tuple[ByAnswer, Float[Tensor, " answer"]]:
    """The direction d and the constant c of function(x)·by_output = x·d + c, of an affine one."""
    with torch.enable_grad():
        variable = x.detach().requires_grad_()
        output = function(variable)
        direction = torch.stack(
            [
                torch.autograd.grad(output, variable, each, retain_graph=True)[0]
                for each in by_output
            ]
        )
    return direction, (function(torch.zeros_like(x)) * by_output).sum((1, 2, 3))
