"""What is added to the scores? M: −∞ where a key may not be seen, and what distance adds or takes.

Made once a forward and shared by all layers that are masked alike.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.model.attention.mask import Mask, Visible
from interp.model.context import Context
from interp.model.positions.positions import Unturned

Square = Float[Tensor, "batch head query key"]


@dataclass(frozen=True)
class Masking:
    """M of one attention.

    Attributes:
        mask: which keys a query may see.
        positions: what is added for the distance between them.
    """

    mask: Mask
    positions: Unturned

    def visible(self, context: Context) -> Visible | None:
        """True where a query may see a key; ``None`` if every query sees every key."""
        return context.once(self.mask, lambda: self.mask.visible(context))

    def add(self, scores: Square, context: Context) -> Square:
        """+ M, written into ``scores``: a matrix this large costs more to allocate than to add."""
        bias, visible = self._distance(scores.dtype, context), self.visible(context)
        scores = scores if bias is None else scores.add_(bias)
        return scores if visible is None else scores.masked_fill_(~visible, -torch.inf)

    def is_triangle(self, context: Context) -> bool:
        """Whether it is the one that the fused kernel knows by heart."""
        whole = context.n_query == context.n_key and context.real is None
        return whole and self.mask.is_triangle(context) and not self.positions.lowers_scores

    def fused(self, dtype: torch.dtype, context: Context) -> Tensor | None:
        """All of M in one tensor for the fused kernel; ``None`` if it needs none."""
        if self.is_triangle(context):
            return None

        def make() -> Tensor | None:
            bias, visible = self._distance(dtype, context), self.visible(context)
            if bias is None or visible is None:
                return visible if bias is None else bias
            return bias.masked_fill(~visible, -torch.inf)

        return context.once(("fused", self, dtype), make)

    def _distance(self, dtype: torch.dtype, context: Context) -> Tensor | None:
        def make() -> Tensor | None:
            bias = self.positions.bias(context)
            return None if bias is None else bias.to(dtype)

        return context.once(("bias", self.positions, dtype), make)
