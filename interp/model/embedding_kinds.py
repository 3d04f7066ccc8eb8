"""Embeddings of some models: scaled, of another width than the stream, of token types.

Functions at the end give the parts that a configuration asks for.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.config import EmbeddingConfig
from interp.model.batch import Batch
from interp.model.context import Context
from interp.model.embeddings import AddedEmbedding, NoEmbedding, NoProjection, Tokens
from interp.model.images import Patches
from interp.model.linear import Linear
from interp.model.mlp import matrix
from interp.model.recipe import STORED, Layout
from interp.model.shapes import Stream
from interp.model.tap import Tap
from interp.points import Place, Point


class ScaledTokens(Tokens):
    """W_E[ids] · scale, the scale rounded to the dtype of the weights (Gemma)."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, batch: Batch, context: Context, weight_e: Tensor) -> Tensor:
        """``[batch pos d_model]``."""
        scale = torch.tensor(self.scale, dtype=weight_e.dtype, device=weight_e.device)
        return super().forward(batch, context, weight_e) * scale


class ProjectedTokens(Tokens):
    """W_E[ids]·W_P: embeddings of another width, projected to that of the stream (OPT-350m)."""

    def __init__(self, width: int, d_model: int) -> None:
        super().__init__()
        self.project = Projection(width, d_model)

    def forward(self, batch: Batch, context: Context, weight_e: Tensor) -> Tensor:
        """``[batch pos d_model]``."""
        return self.project(super().forward(batch, context, weight_e))


class TokenTypes(AddedEmbedding):
    """x + W_type[type], where the type is the segment of the text that a token is in (BERT)."""

    def __init__(self, n_types: int, d_model: int) -> None:
        super().__init__()
        self.W_type = nn.Parameter(torch.randn(n_types, d_model).mul_(0.02))

    def forward(self, x: Stream, batch: Batch, context: Context, tap: Tap) -> Stream:
        """``x + W_type[type]``."""
        return x + tap(Point.TYPE_EMBED, self.W_type[batch.types_from(context.offset)])

    def layout(self) -> Layout:
        """The token-type embedding."""
        return {Place(Point.TYPE_EMBED): STORED}


class Projection(Linear):
    """x·W, from the width of the embedding to the width of the stream, or back; without bias."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = matrix(n_out, n_in)

    def forward(self, x: Tensor) -> Tensor:
        """``x @ W``."""
        return self.linear(x, self.weight, None)


class SumProjection(NoProjection, Linear):
    """x·W + b, from the width of the sum of embeddings to the width of the stream (ELECTRA)."""

    def __init__(self, width: int, d_model: int) -> None:
        super().__init__()
        self.weight, self.bias = matrix(d_model, width), nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Float[Tensor, "batch pos width"]) -> Stream:
        """``x @ W + b``."""
        return self.linear(x, self.weight, self.bias)

    def pull_back(self, w: Tensor) -> tuple[Tensor, Tensor | None]:
        """w′ = W·w, c = b·w."""
        return w @ self.weight.to(w.dtype), w @ self.bias.to(w.dtype)


def tokens_of(config: EmbeddingConfig, d_model: int) -> Tokens | Patches:
    """The token embedding of a configuration."""
    if config.patches is not None:
        return Patches(config.patches, d_model)
    if config.width is not None:
        return ProjectedTokens(config.width, d_model)
    return Tokens() if config.scale is None else ScaledTokens(config.scale)


def token_types_of(config: EmbeddingConfig, d_model: int) -> AddedEmbedding:
    """The token-type embedding of a configuration."""
    return TokenTypes(config.n_types, d_model) if config.n_types else NoEmbedding()


def sum_projection_of(config: EmbeddingConfig, d_model: int) -> NoProjection:
    """The projection of the sum of embeddings; the identity if a configuration has none."""
    width = config.sum_width
    return NoProjection() if width is None else SumProjection(width, d_model)
