"""Padding as TransformerLens has it, in the mask and in the embedding of positions.

No query attends to padding. A padded query attends to the real tokens before it, and to nothing if
there are none: its row of the pattern is zeros. Windows and ALiBi count columns, and padding has
no position embedding. What real tokens compute is as elsewhere in this package.

Where ``attention_dir`` is ``bidirectional``, TransformerLens masks nothing, padding neither.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from interp.model.attention.attention import Attention
from interp.model.attention.mask import Bidirectional, Causal, Masking, Visible, Window
from interp.model.context import Context
from interp.model.positions.alibi import ALiBi
from interp.model.positions.none import PositionBias


@dataclass(frozen=True)
class PaddedCausal:
    """Real keys of the own and earlier columns; of its own where there are none.

    Softmax needs one visible key; :class:`Padding` hides it again.

    Attributes:
        window: how many columns before the own one are out of reach; ``None`` for none.
    """

    window: int | None = None
    is_bidirectional: bool = False

    def is_causal(self, context: Context) -> bool:
        """As long as every row is within the window."""
        return self.window is None or context.n_key <= self.window

    def visible(self, context: Context) -> Visible:
        """Causal, within the window, without padding."""
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
class Unmasked:
    """Every key, padding too."""

    is_bidirectional: bool = True

    def is_causal(self, context: Context) -> bool:  # noqa: ARG002 - Mask's signature
        """False."""
        return False

    def visible(self, context: Context) -> None:
        """Everything."""


@dataclass(frozen=True)
class ColumnALiBi(ALiBi):
    """ALiBi over columns, padding included, and none of later keys."""

    def bias(self, context: Context) -> PositionBias:
        """−slope · columns between query and key."""
        columns = context.columns
        keys = torch.arange(context.n_key, device=columns.device)
        earlier = (keys - columns[:, None]).clamp(max=0).double()
        return self.slopes().to(columns.device)[None, :, None, None] * earlier


def use_padded_masks(attentions: list[Attention]) -> None:
    """Give attentions these masks in the place of their own."""
    for attention in attentions:
        masking = attention.masking
        if isinstance(masking.positions, ALiBi):
            alibi = ColumnALiBi(masking.positions.n_heads)
            attention.masking = masking = Masking(masking.mask, alibi)
        if isinstance(masking.mask, Bidirectional):
            attention.masking = Masking(Unmasked(), masking.positions)
        if isinstance(masking.mask, Causal | Window):
            window = masking.mask.size if isinstance(masking.mask, Window) else None
            attention.masking = Masking(PaddedCausal(window), masking.positions)


@dataclass(frozen=True, eq=False)
class Padding:
    """Where there is padding in one forward.

    Attributes:
        queries: ``[batch pos]`` of its columns.
        itself: ``[batch 1 query key]``, where a padded query meets itself.
    """

    queries: Bool[Tensor, "batch pos"]
    itself: Bool[Tensor, "batch 1 query key"]

    @classmethod
    def of(cls, context: Context) -> "Padding | None":
        """That of a forward; ``None`` if there is none."""
        if context.real is None:
            return None
        columns = context.columns
        keys = torch.arange(context.n_key, device=columns.device)
        itself = (keys == columns[:, None]) & ~context.real[:, None, :]
        return cls(~context.real[:, columns], itself[:, None])
