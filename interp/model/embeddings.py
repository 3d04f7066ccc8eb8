"""What is a token before the first block? Its embedding, its position's and its type's.

    x = W_E[ids] · scale + W_pos[position] + W_type[type], and perhaps the norm of that

Positions are learned (GPT-2) or waves (Vaswani et al. 2017, §3.5); types are BERT's segments. A
square of an image is read by one matrix, as a token is by its row (Dosovitskiy et al. 2021).
"""

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from interp.config import EmbeddingConfig, Layout, PatchConfig, PositionsConfig
from interp.errors import InvalidInput
from interp.model.batch import Batch
from interp.model.context import Context
from interp.model.linear import Linear
from interp.model.mlp import matrix
from interp.model.recipe import KEPT, Reader, Recipe
from interp.model.recipe import Layout as PlaceLayout
from interp.model.tap import Tap
from interp.points import Place, Point

Stream = Float[Tensor, "batch pos d_model"]


class Added(nn.Module):
    """Nothing that is added to the embedding; the parent of what is."""

    def forward(self, x: Stream, batch: Batch, context: Context, tap: Tap) -> Stream:  # noqa: ARG002
        """x, as it is."""
        return x

    def layout(self) -> PlaceLayout:
        """No places of its own."""
        return {}


class AddedPositions(Added):
    """x + W_pos[position]; ``W_pos`` is ``[n_ctx d_model]``."""

    def forward(self, x: Stream, batch: Batch, context: Context, tap: Tap) -> Stream:  # noqa: ARG002
        """X + W_pos[position]."""
        return x + tap(Point.POS_EMBED, self.at(context.positions))

    def at(self, positions: Tensor) -> Tensor:
        """W_pos[position]."""
        raise NotImplementedError

    def table(self) -> Tensor:
        """W_pos."""
        raise NotImplementedError

    def layout(self) -> PlaceLayout:
        """The position embedding, which follows from the positions alone."""

        def added(entry: AddedPositions, of: Reader) -> Tensor:
            return entry.at(of.context.positions)

        return {Place(Point.POS_EMBED): Recipe(added)}


class LearnedPositions(AddedPositions):
    """A trained vector a position."""

    def __init__(self, n_ctx: int, d_model: int) -> None:
        super().__init__()
        self.W_pos = nn.Parameter(torch.randn(n_ctx, d_model) * 0.02)

    def at(self, positions: Tensor) -> Tensor:
        """W_pos[position]."""
        return self.W_pos[positions]

    def table(self) -> Tensor:
        """W_pos."""
        return self.W_pos


class Waves(AddedPositions):
    """Sine and cosine of the position at geometric wavelengths; nothing is trained."""

    like: Tensor

    def __init__(self, n_ctx: int, d_model: int, config: PositionsConfig) -> None:
        super().__init__()
        self.n_ctx, self.d_model = n_ctx, d_model
        self.base = config.base
        self.pairs: Layout = config.layout
        # Holds nothing, but moves with the model: what type the waves have and where they are.
        self.register_buffer("like", torch.empty(0), persistent=False)

    def at(self, positions: Tensor) -> Tensor:
        """The waves at ``positions``, computed in float64 whatever the model's type."""
        phase = angles(positions, self.d_model, self.base)
        return pair_up(phase.sin(), phase.cos(), self.pairs).to(self.like.dtype)

    def table(self) -> Tensor:
        """The waves at every position."""
        return self.at(torch.arange(self.n_ctx, device=self.like.device))


class Types(Added):
    """x + W_type[type]: which segment of its text a token is in (BERT)."""

    def __init__(self, n_types: int, d_model: int) -> None:
        super().__init__()
        self.W_type = nn.Parameter(torch.randn(n_types, d_model) * 0.02)

    def forward(self, x: Stream, batch: Batch, context: Context, tap: Tap) -> Stream:
        """X + W_type[type]."""
        types = batch.types_from(context.offset)
        outside = int(types.max()) >= len(self.W_type)
        if outside:
            raise InvalidInput(
                f"A token has type {int(types.max())}; this model has types 0 to "
                f"{len(self.W_type) - 1}."
            )
        return x + tap(Point.TYPE_EMBED, self.W_type[types])

    def layout(self) -> PlaceLayout:
        """The type's embedding."""
        return {Place(Point.TYPE_EMBED): KEPT}


def positions_of(config: PositionsConfig, n_ctx: int, d_model: int) -> Added:
    """What ``config`` adds to the embedding."""
    match config.kind:
        case "learned":
            return LearnedPositions(n_ctx, d_model)
        case "sinusoidal":
            return Waves(n_ctx, d_model, config)
        case _:
            return Added()


def types_of(config: EmbeddingConfig, d_model: int) -> Added:
    """The types of tokens, if there are any."""
    return Types(config.n_types, d_model) if config.n_types else Added()


# ---- tokens and squares -------------------------------------------------------------------------


class Tokens(nn.Module):
    """W_E[ids]."""

    def forward(self, batch: Batch, context: Context, weight_e: Tensor) -> Tensor:
        """``[batch pos d_model]``."""
        return F.embedding(batch.ids[:, context.offset :], weight_e)


class ScaledTokens(Tokens):
    """W_E[ids] · scale, the scale rounded to the type of the weights, as was trained (Gemma)."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, batch: Batch, context: Context, weight_e: Tensor) -> Tensor:
        """``[batch pos d_model]``."""
        scale = torch.tensor(self.scale, dtype=weight_e.dtype, device=weight_e.device)
        return super().forward(batch, context, weight_e) * scale


class ProjectedTokens(Tokens):
    """W_E[ids]·W_P: vectors of another width, brought to that of the stream (OPT-350m)."""

    def __init__(self, width: int, d_model: int) -> None:
        super().__init__()
        self.project = Projection(width, d_model)

    def forward(self, batch: Batch, context: Context, weight_e: Tensor) -> Tensor:
        """``[batch pos d_model]``."""
        return self.project(super().forward(batch, context, weight_e))


class Patches(Linear):
    """Squares of an image, each by one matrix, behind the learned tokens (CLS first)."""

    def __init__(self, config: PatchConfig, d_model: int) -> None:
        super().__init__()
        self.size = config.size
        self.reads = (config.channels, config.height, config.width)
        self.weight = matrix(d_model, config.channels * config.size**2)
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.special = nn.Parameter(torch.randn(config.n_special, d_model) * 0.02)

    def forward(self, batch: Batch, context: Context, weight_e: None) -> Tensor:  # noqa: ARG002
        """``[batch pos d_model]``: each special token, then each square from the left above."""
        if batch.images is None:
            raise InvalidInput("This model reads images: model(images).")
        squares = rearrange(
            batch.images, "b c (h p) (w q) -> b (h w) (c p q)", p=self.size, q=self.size
        )
        special = self.special.expand(len(squares), -1, -1)
        return torch.cat([special, self.linear(squares, self.weight, self.bias)], dim=1)


class Projection(Linear):
    """x·W: from the width of the embedding to that of the stream, or back; no bias."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = matrix(n_out, n_in)

    def forward(self, x: Tensor) -> Tensor:
        """x·W."""
        return self.linear(x, self.weight, None)


def tokens_of(config: EmbeddingConfig, d_model: int) -> Tokens | Patches:
    """How tokens become vectors under ``config``."""
    if config.patches is not None:
        return Patches(config.patches, d_model)
    if config.width is not None:
        return ProjectedTokens(config.width, d_model)
    return Tokens() if config.scale is None else ScaledTokens(config.scale)


# ---- waves --------------------------------------------------------------------------------------


def angles(positions: Tensor, d: int, base: float) -> Float[Tensor, "*positions d_half"]:
    """P / base^(2i/d), in float64: the angle of position p at wavelength i."""
    wavelengths = base ** (torch.arange(0, d, 2, device=positions.device).double() / d)
    return positions[..., None].double() / wavelengths


def pair_up(first: Tensor, second: Tensor, layout: Layout) -> Tensor:
    """Lay pairs out as (first half, second half) or alternating."""
    if layout == "half":
        return torch.cat([first, second], dim=-1)
    return torch.stack([first, second], dim=-1).flatten(-2)
