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
    def is_causal(self) -> bool:
        """Whether, without padding, it is the lower triangle that fused kernels know by heart."""
        ...

    @property
    def looks_ahead(self) -> bool:
        """Whether a query may see keys of later columns."""
        ...

    def visible(self, context: Context) -> Visible | None:
        """True where a query may see a key; ``None`` if every query sees every key."""
        ...


@dataclass(frozen=True)
class Causal:
    """A query sees the keys of its own column and earlier ones."""

    is_causal: bool = True
    looks_ahead: bool = False

    def visible(self, context: Context) -> Visible:
        """The lower triangle, less padding."""
        keys = torch.arange(context.n_key, device=context.positions.device)
        return _without_padding(keys <= context.columns[:, None], context)


@dataclass(frozen=True)
class Bidirectional:
    """A query sees every real key."""

    is_causal: bool = False
    looks_ahead: bool = True

    def visible(self, context: Context) -> Visible | None:
        """Everything, less padding."""
        if context.real is None:
            return None
        n = (context.n_query, context.n_key)
        return _without_padding(
            torch.ones(n, dtype=torch.bool, device=context.positions.device), context
        )


@dataclass(frozen=True)
class AcrossStacks:
    """A query of the decoder sees every real token of the source."""

    is_causal: bool = False
    looks_ahead: bool = True

    def visible(self, context: Context) -> Visible | None:
        """The source, less its padding."""
        real = context.memory_real
        return None if real is None else real[:, None, None, :]


def _without_padding(rule: Bool[Tensor, "query key"], context: Context) -> Visible:
    if context.real is None:
        return rule[None, None]
    columns = context.columns
    keys = torch.arange(context.n_key, device=columns.device)
    padded = ~context.real[:, columns, None]
    seen = rule & context.real[:, None, :]
    itself = keys == columns[:, None]
    return torch.where(padded, itself, seen)[:, None]
