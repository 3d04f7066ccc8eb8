"""The entry of a stack: embeddings of tokens, positions and token types.

    x = W_E[ids] · scale + W_pos[position] + W_type[type], possibly normalized,
                                                            then possibly projected (ELECTRA)

Positions are learned (GPT-2) or sinusoidal (Vaswani et al. 2017, §3.5); token types are BERT's
segments. A patch of an image is embedded by one matrix (Dosovitskiy et al. 2021).
"""

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.config import EmbeddingConfig, PatchConfig, PositionsConfig
from interp.errors import InvalidInput
from interp.model.batch import Batch
from interp.model.context import Context
from interp.model.linear import Linear
from interp.model.mlp import bias_of, matrix
from interp.model.positions.rotary import PAIRS, Frequencies, Rotary
from interp.model.recipe import STORED, Layout, Reader, Recipe
from interp.model.shapes import Stream
from interp.model.tap import Tap
from interp.points import Place, Point


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


class PositionEmbedding(AddedEmbedding):
    """x + W_pos[position]; ``W_pos`` is ``[n_ctx d_model]``."""

    def forward(self, x: Stream, batch: Batch, context: Context, tap: Tap) -> Stream:  # noqa: ARG002
        """``x + W_pos[position]``."""
        return x + tap(Point.POS_EMBED, self.at(context.positions))

    def at(self, positions: Tensor) -> Tensor:
        """W_pos[position]."""
        raise NotImplementedError

    def table(self) -> Tensor:
        """W_pos."""
        raise NotImplementedError

    def layout(self) -> Layout:
        """The position embedding, a function of the positions alone."""

        def embedding(entry: PositionEmbedding, of: Reader) -> Tensor:
            return entry.at(of.context.positions)

        return {Place(Point.POS_EMBED): Recipe(embedding)}


class LearnedPositions(PositionEmbedding):
    """One trained vector per position."""

    def __init__(self, n_ctx: int, d_model: int) -> None:
        super().__init__()
        self.W_pos = nn.Parameter(torch.randn(n_ctx, d_model).mul_(0.02))

    def at(self, positions: Tensor) -> Tensor:
        """W_pos[position]."""
        return self.W_pos[positions]

    def table(self) -> Tensor:
        """W_pos."""
        return self.W_pos


class SinusoidalPositions(PositionEmbedding):
    """Sine and cosine of the position at geometric wavelengths; nothing is trained."""

    like: Tensor

    def __init__(self, n_ctx: int, d_model: int, config: PositionsConfig) -> None:
        super().__init__()
        self.n_ctx, self.d_model = n_ctx, d_model
        self.base, self.first, self.pairs = config.base, config.first, PAIRS[config.layout]
        # An empty buffer, which moves with the model and so has its dtype and device.
        self.register_buffer("like", torch.empty(0), persistent=False)

    def at(self, positions: Tensor) -> Tensor:
        """Sine and cosine at ``positions``, computed in float64 and rounded."""
        phase = angles(positions + self.first, self.d_model, self.base)
        return self.pairs.join(phase.sin(), phase.cos()).to(self.like.dtype)

    def table(self) -> Tensor:
        """W_pos: sine and cosine at every position."""
        return self.at(torch.arange(self.n_ctx, device=self.like.device))

    def shift(self, offset: int) -> Float[Tensor, "d_model d_model"]:
        """R with W_pos[k + offset] = W_pos[k] R, in float64: a rotation of each pair of dimensions.

        Sine and cosine of a sum of angles; rotary positions rotate by the same angles.
        """
        rotary = Rotary(Frequencies(self.base), self.pairs)
        return rotary.rotated(torch.eye(self.d_model).double(), torch.tensor(-offset))


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


def position_embedding_of(config: PositionsConfig, n_ctx: int, d_model: int) -> AddedEmbedding:
    """The position embedding of a configuration."""
    if config.kind == "learned" or config.learned:
        return LearnedPositions(n_ctx, d_model)
    if config.kind == "sinusoidal":
        return SinusoidalPositions(n_ctx, d_model, config)
    return NoEmbedding()


def token_types_of(config: EmbeddingConfig, d_model: int) -> AddedEmbedding:
    """The token-type embedding of a configuration."""
    return TokenTypes(config.n_types, d_model) if config.n_types else NoEmbedding()


# ---- tokens and patches -------------------------------------------------------------------------


class Tokens(nn.Module):
    """W_E[ids]."""

    def forward(self, batch: Batch, context: Context, weight_e: Tensor) -> Tensor:
        """``[batch pos d_model]``."""
        return F.embedding(batch.ids[:, context.offset :], weight_e)


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


class Patches(Linear):
    """Learned tokens (CLS first), then the patches of an image, each projected by one matrix."""

    def __init__(self, config: PatchConfig, d_model: int) -> None:
        super().__init__()
        self.size = config.size
        self.image_shape = (config.channels, config.height, config.width)
        self.weight = matrix(d_model, config.channels * config.size**2)
        self.bias = bias_of(d_model, config.bias)
        n = config.n_special
        self.special = nn.Parameter(torch.randn(n, d_model).mul_(0.02)) if n else None

    def forward(self, batch: Batch, context: Context, weight_e: None) -> Tensor:  # noqa: ARG002
        """``[batch pos d_model]``: each special token, then the patches row by row."""
        if batch.images is None:
            raise InvalidInput("This model reads images: model(images).")
        patches = rearrange(
            batch.images, "b c (h p) (w q) -> b (h w) (c p q)", p=self.size, q=self.size
        )
        x = self.linear(patches, self.weight, self.bias)
        if self.special is None:
            return x
        return torch.cat([self.special.expand(len(x), -1, -1), x], dim=1)


class Projection(Linear):
    """x·W, from the width of the embedding to the width of the stream, or back; without bias."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = matrix(n_out, n_in)

    def forward(self, x: Tensor) -> Tensor:
        """``x @ W``."""
        return self.linear(x, self.weight, None)


class NoProjection(nn.Module):
    """x ↦ x, as the embeddings are as wide as the stream; base class of :class:`SumProjection`."""

    def forward(self, x: Tensor) -> Tensor:
        """x, unchanged."""
        return x

    def pull_back(self, w: Tensor) -> tuple[Tensor, Tensor | None]:
        """``(w′, c)`` with projected(x)·w = x·w′ + c; ``c`` is ``None`` if there is no bias."""
        return w, None


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


def sum_projection_of(config: EmbeddingConfig, d_model: int) -> NoProjection:
    """The projection of the sum of embeddings; the identity if a configuration has none."""
    width = config.sum_width
    return NoProjection() if width is None else SumProjection(width, d_model)


def tokens_of(config: EmbeddingConfig, d_model: int) -> Tokens | Patches:
    """The token embedding of a configuration."""
    if config.patches is not None:
        return Patches(config.patches, d_model)
    if config.width is not None:
        return ProjectedTokens(config.width, d_model)
    return Tokens() if config.scale is None else ScaledTokens(config.scale)


def angles(positions: Tensor, d: int, base: float) -> Float[Tensor, "*positions d_half"]:
    """position / base^(2i/d), in float64: the angle of the i-th pair of dimensions."""
    wavelengths = base ** (torch.arange(0, d, 2, device=positions.device).double() / d)
    return positions[..., None].double() / wavelengths
