"""Which keys may a query see? M in A = softmax(x Y xᵀ / scale + M).

A padded query sees itself alone: its output means nothing, but it is finite and no real token
ever reads it.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool
from torch import Tensor

from interp.model.context import Context

Visible = Bool[Tensor, "#batch 1 query key"]


@runtime_checkable
class Mask(Protocol):
    """A rule of visibility, chosen when the model is built."""

    @property
    def looks_ahead(self) -> bool:
        """Whether a query may see keys of later columns."""
        ...

    def is_triangle(self, context: Context) -> bool:
        """Whether, but for padding, it is the lower triangle that fused kernels know by heart."""
        ...

    def visible(self, context: Context) -> Visible | None:
        """True where a query may see a key; ``None`` if every query sees every key."""
        ...


@dataclass(frozen=True)
class Causal:
    """A query sees the keys of its own column and earlier ones."""

    looks_ahead: bool = False

    def is_triangle(self, context: Context) -> bool:  # noqa: ARG002 - whatever is read
        """It is."""
        return True

    def visible(self, context: Context) -> Visible:
        """The lower triangle, less padding."""
        keys = torch.arange(context.n_key, device=context.positions.device)
        return _without_padding((keys <= context.columns[:, None])[None], context)


@dataclass(frozen=True)
class Window:
    """A query sees its own key and those of so many positions before it that ``size`` are seen."""

    size: int
    looks_ahead: bool = False

    def is_triangle(self, context: Context) -> bool:
        """As long as all fits in."""
        return context.n_key <= self.size

    def visible(self, context: Context) -> Visible:
        """The band under the diagonal, less padding."""
        keys = torch.arange(context.n_key, device=context.positions.device)
        earlier = keys <= context.columns[:, None]
        apart = context.positions[:, :, None] - context.key_positions[:, None, :]
        return _without_padding(earlier & (apart < self.size), context)


@dataclass(frozen=True)
class Bidirectional:
    """A query sees every real key."""

    looks_ahead: bool = True

    def is_triangle(self, context: Context) -> bool:  # noqa: ARG002 - whatever is read
        """It is not."""
        return False

    def visible(self, context: Context) -> Visible | None:
        """Everything, less padding."""
        if context.real is None:
            return None
        n = (1, context.n_query, context.n_key)
        return _without_padding(
            torch.ones(n, dtype=torch.bool, device=context.positions.device), context
        )


@dataclass(frozen=True)
class AcrossStacks:
    """A query of the decoder sees every real token of the source."""

    looks_ahead: bool = True

    def is_triangle(self, context: Context) -> bool:  # noqa: ARG002 - whatever is read
        """It is not."""
        return False

    def visible(self, context: Context) -> Visible | None:
        """The source, less its padding."""
        real = context.memory_real
        return None if real is None else real[:, None, None, :]


def _without_padding(rule: Bool[Tensor, "#batch query key"], context: Context) -> Visible:
    if context.real is None:
        return rule[:1, None]
    columns = context.columns
    keys = torch.arange(context.n_key, device=columns.device)
    padded = ~context.real[:, columns, None]
    seen = rule & context.real[:, None, :]
    itself = keys == columns[:, None]
    return torch.where(padded, itself, seen)[:, None]
