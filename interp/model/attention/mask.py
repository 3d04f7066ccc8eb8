"""M in A = softmax(x Y xᵀ / scale + M): −∞ where a query may not attend, plus the position bias.

A padded query attends to itself only: its output is meaningless but finite, and no real token
attends to it. Masks other than the causal one are in :mod:`interp.model.attention.mask_kinds`.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool
from torch import Tensor

from interp.model.context import Context
from interp.model.positions.scheme import PositionScheme
from interp.model.shapes import Matrix

Visible = Bool[Tensor, "#batch 1 query key"]


@runtime_checkable
class Mask(Protocol):
    """Which keys a query may attend to; chosen when the model is built."""

    @property
    def is_bidirectional(self) -> bool:
        """Whether a query may attend to keys of later columns."""
        ...

    def is_causal(self, context: Context) -> bool:
        """Whether, apart from padding, it is the lower triangle, which fused kernels build in."""
        ...

    def visible(self, context: Context) -> Visible | None:
        """True where a query may attend to a key; ``None`` if every query attends to every key."""
        ...


@dataclass(frozen=True)
class Causal:
    """A query attends to the keys of its own and earlier columns."""

    is_bidirectional: bool = False

    def is_causal(self, context: Context) -> bool:  # noqa: ARG002 - Mask's signature
        """True."""
        return True

    def visible(self, context: Context) -> Visible:
        """The lower triangle, with padding masked."""
        keys = torch.arange(context.n_key, device=context.positions.device)
        return without_padding((keys <= context.columns[:, None])[None], context)


@dataclass(frozen=True)
class Masking:
    """M of one attention; computed once per forward for all layers that share it.

    Attributes:
        mask: which keys a query may attend to.
        positions: the position scheme, which may add a bias to the scores.
    """

    mask: Mask
    positions: PositionScheme

    def visible(self, context: Context) -> Visible | None:
        """True where a query may attend to a key; ``None`` if every query attends to every key."""
        return context.once(self.mask, lambda: self.mask.visible(context))

    def add(self, scores: Matrix, context: Context) -> Matrix:
        """``scores + M``, in place: allocating a matrix this large costs more than the addition."""
        bias, visible = self._bias(scores.dtype, context), self.visible(context)
        scores = scores if bias is None else scores.add_(bias)
        return scores if visible is None else scores.masked_fill_(~visible, -torch.inf)

    def is_causal(self, context: Context) -> bool:
        """Whether M is the causal mask of the fused kernel and nothing else."""
        whole = context.n_query == context.n_key and context.real is None
        return whole and self.mask.is_causal(context) and not self.positions.has_bias

    def fused(self, dtype: torch.dtype, context: Context) -> Tensor | None:
        """M as one tensor for the fused kernel; ``None`` if it needs none."""
        if self.is_causal(context):
            return None

        def compute() -> Tensor | None:
            bias, visible = self._bias(dtype, context), self.visible(context)
            if bias is None or visible is None:
                return visible if bias is None else bias
            return bias.masked_fill(~visible, -torch.inf)

        return context.once(("fused", self, dtype), compute)

    def _bias(self, dtype: torch.dtype, context: Context) -> Tensor | None:
        if not self.positions.has_bias:
            return None

        def compute() -> Tensor | None:
            bias = self.positions.bias(context)
            return None if bias is None else bias.to(dtype)

        return context.once(("bias", self.positions, dtype), compute)


def without_padding(rule: Bool[Tensor, "#batch query key"], context: Context) -> Visible:
    """``rule`` with padded keys masked; a padded query attends to itself only."""
    if context.real is None:
        return rule[:1, None]
    columns = context.columns
    keys = torch.arange(context.n_key, device=columns.device)
    padded = ~context.real[:, columns, None]
    visible = rule & context.real[:, None, :]
    itself = keys == columns[:, None]
    return torch.where(padded, itself, visible)[:, None]
