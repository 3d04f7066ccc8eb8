"""The entry of a stack: embeddings of tokens, positions and token types.

    x = W_E[ids] · scale + W_pos[position] + W_type[type], possibly normalized,
                                                            then possibly projected (ELECTRA)

Scales, token types and projections are in :mod:`interp.model.embedding_kinds`, W_pos is in
:mod:`interp.model.positions.embedding`; patches of images take the place of tokens in
:mod:`interp.model.images`.
"""

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.model.batch import Batch
from interp.model.context import Context
from interp.model.recipe import Layout
from interp.model.shapes import Stream
from interp.model.tap import Tap


class AddedEmbedding(nn.Module):
    """Base class: an embedding that is added to that of the tokens."""

    def forward(self, x: Stream, batch: Batch, context: Context, tap: Tap) -> Stream:
        """The sum, given the embedding ``x`` of the tokens."""
        raise NotImplementedError

    def layout(self) -> Layout:
        """Its places: none."""
        return {}


class NoEmbedding(AddedEmbedding):
    """x: nothing is added."""

    def forward(self, x: Stream, batch: Batch, context: Context, tap: Tap) -> Stream:  # noqa: ARG002
        """x, unchanged."""
        return x


class Tokens(nn.Module):
    """W_E[ids]."""

    def forward(self, batch: Batch, context: Context, weight_e: Tensor) -> Tensor:
        """``[batch pos d_model]``."""
        return F.embedding(batch.ids[:, context.offset :], weight_e)


class NoProjection(nn.Module):
    """x ↦ x, as the embeddings are as wide as the stream; base class of :class:`SumProjection`."""

    def forward(self, x: Tensor) -> Tensor:
        """x, unchanged."""
        return x

    def pull_back(self, w: Tensor) -> tuple[Tensor, Tensor | None]:
        """``(w′, c)`` with projected(x)·w = x·w′ + c; ``c`` is ``None`` if there is no bias."""
        return w, None
