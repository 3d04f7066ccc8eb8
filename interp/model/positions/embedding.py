"""Position embeddings: x + W_pos[position], where W_pos is learned (GPT-2) or sinusoidal.

Sinusoidal positions: Vaswani et al. 2017, §3.5.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.config import PositionsConfig
from interp.model.batch import Batch
from interp.model.context import Context
from interp.model.embeddings import AddedEmbedding, NoEmbedding
from interp.model.positions.rotary import PAIRS, Frequencies, Rotary
from interp.model.recipe import Layout, Reader, Recipe
from interp.model.shapes import Stream
from interp.model.tap import Tap
from interp.points import Place, Point


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


def angles(positions: Tensor, d: int, base: float) -> Float[Tensor, "*positions d_half"]:
    """position / base^(2i/d), in float64: the angle of the i-th pair of dimensions."""
    wavelengths = base ** (torch.arange(0, d, 2, device=positions.device).double() / d)
    return positions[..., None].double() / wavelengths


def position_embedding_of(config: PositionsConfig, n_ctx: int, d_model: int) -> AddedEmbedding:
    """The position embedding of a configuration."""
    if config.kind == "learned" or config.learned:
        return LearnedPositions(n_ctx, d_model)
    if config.kind == "sinusoidal":
        return SinusoidalPositions(n_ctx, d_model, config)
    return NoEmbedding()
