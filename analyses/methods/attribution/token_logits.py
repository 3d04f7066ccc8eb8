"""The logits of given tokens at one column of each row, or their differences, as sums of terms.

They are taken before a soft-cap, which is not linear: the model returns cap·tanh(logit / cap).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.attribution.logit_terms import (
    Part,
    Terms,
    logit_direction,
    logit_terms,
    places_of_terms,
    source_terms,
)
from analyses.methods.attribution.stream_terms import StreamWalk, Walk
from interp.cache import Cache
from interp.metrics import at_least_float32
from interp.model import Network, Unembedding, unembedding_of
from interp.points import Place


@dataclass(frozen=True, eq=False)
class TokenLogits:
    """The logit of a token in each row, or the difference of two.

    Attributes:
        model: the model.
        cache: cache of a run that recorded :func:`places_of_logits`.
        column: the column of each row.
        ids: the token of each row; for a difference, also the token whose logit is subtracted.
        walk: what splits outputs into terms.
    """

    model: Network
    cache: Cache
    column: Int[Tensor, " batch"]
    ids: Int[Tensor, "token batch"]
    walk: Walk = StreamWalk

    def values(self) -> Float[Tensor, " batch"]:
        """The logits or differences, as the model computes them from its last stream."""
        unembed, stream = unembedding_of(self.model), self.cache[_end(self.model)]
        rows = torch.arange(len(self.column), device=stream.device)
        norm = self.model.stacks[-1].final_norm
        if norm.mixes_positions:
            x = norm(stream)[rows, self.column][:, None]
        else:
            x = norm(stream[rows, self.column][:, None])
        read = at_least_float32(unembed.read(x)[:, 0])
        logits = [_of_rows(unembed, read, ids) for ids in self.ids]
        return logits[0] if len(logits) == 1 else logits[0] - logits[1]

    def terms(self) -> Terms:
        """The terms that sum to :meth:`values`, b_U included.

        See :func:`analyses.methods.attribution.logit_terms.logit_terms`.

        Raises:
            InvalidInput: the logits are not linear in the stream.
        """
        w, bias = logit_direction(unembedding_of(self.model), *self.ids)
        return logit_terms(self.model, self.cache, w, self.column, self.walk) | bias

    def sources(self) -> dict[Part, Float[Tensor, "batch key"]]:
        """The term of each head by the token that it attends to."""
        w, _ = logit_direction(unembedding_of(self.model), *self.ids)
        return source_terms(self.model, self.cache, w, self.column)


def _of_rows(
    unembed: Unembedding, read: Float[Tensor, "batch width"], ids: Int[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """The logit of one token in each row, before any soft-cap."""
    logits = (read * unembed.weight[ids]).sum(-1)
    return logits if unembed.b_U is None else logits + unembed.b_U[ids]


def places_of_logits(model: Network, *, sources: bool = False) -> list[Place]:
    """The places that a run must record for :class:`TokenLogits`, and for its ``sources``."""
    return [*places_of_terms(model, sources=sources), _end(model)]


def _end(model: Network) -> Place:
    """The place of the stream after the last block."""
    stack = model.stacks[-1]
    end = stack.end
    return Place(end.point, len(stack.blocks) - 1, end.norm, stack.name_in_places)
