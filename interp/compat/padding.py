"""Padding as in TransformerLens, in the mask and in the position embedding.

No query attends to padding. A padded query attends to the real tokens before it, and to nothing if
there are none: its row of the pattern is zeros. Windows and ALiBi count columns, and padding has
no position embedding. Activations of real tokens are as elsewhere in this package.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from interp.model import (
    ALiBi,
    Attention,
    Causal,
    Context,
    Masking,
    PositionBias,
    Visible,
    Window,
)


@dataclass(frozen=True)
class PaddedCausal:
    """A causal mask over real keys; a query without any sees the key of its own column.

    Softmax needs one visible key; :class:`Padding` hides it again.

    Attributes:
        window: the number of columns that a query sees, its own included; ``None`` for all.
    """

    window: int | None = None
    is_bidirectional: bool = False

    def is_causal(self, context: Context) -> bool:
        """Whether every row is within the window."""
        return self.window is None or context.n_key <= self.window

    def visible(self, context: Context) -> Visible:
        """True where a query may attend to a key."""
        columns = context.columns[:, None]
        keys = torch.arange(context.n_key, device=columns.device)
        rule = keys <= columns
        if self.window is not None:
            rule = rule & (keys > columns - self.window)
        if context.real is None:
            return rule[None, None]
        visible = rule & context.real[:, None, :]
        return torch.where(visible.any(-1, keepdim=True), visible, keys == columns)[:, None]


@dataclass(frozen=True)
class ColumnALiBi(ALiBi):
    """ALiBi over columns, padding included."""

    def bias(self, context: Context) -> PositionBias:
        """−slope · (columns from key to query)."""
        columns = context.columns
        keys = torch.arange(context.n_key, device=columns.device)
        earlier = (keys - columns[:, None]).clamp(max=0).double()
        return self.slopes().to(columns.device)[None, :, None, None] * earlier


def use_padded_masks(attentions: list[Attention]) -> None:
    """Replace the causal masks of attentions, and ALiBi, by those of this module."""
    for attention in attentions:
        mask, positions = attention.masking.mask, attention.masking.positions
        if isinstance(positions, ALiBi):
            positions = ColumnALiBi(positions.n_heads)
        if isinstance(mask, Causal | Window):
            window = mask.size if isinstance(mask, Window) else None
            attention.masking = Masking(PaddedCausal(window), positions)


@dataclass(frozen=True, eq=False)
class Padding:
    """The padding of one forward.

    Attributes:
        queries: ``[batch pos]``, true where the query is padding.
        itself: ``[batch 1 query key]``, true where a padded query meets its own key.
    """

    queries: Bool[Tensor, "batch pos"]
    itself: Bool[Tensor, "batch 1 query key"]

    @classmethod
    def of(cls, context: Context) -> "Padding | None":
        """The padding of a forward; ``None`` if there is none."""
        if context.real is None:
            return None
        columns = context.columns
        keys = torch.arange(context.n_key, device=columns.device)
        itself = (keys == columns[:, None]) & ~context.real[:, None, :]
        return cls(~context.real[:, columns], itself[:, None])
