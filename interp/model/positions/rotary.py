"""Rotary positions: pairs of dimensions are rotated, so that q_i·k_j depends on i − j.

RoPE, Su et al. 2021.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.model.context import Context
from interp.model.positions.frequencies import Frequencies
from interp.model.positions.none import Heads, NoPositions
from interp.model.positions.pairs import HalfPairs
from interp.model.recipe import Layout, Reader, Recipe
from interp.model.tap import Tap
from interp.points import Place, Point


@dataclass(frozen=True)
class Rotary(NoPositions):
    """R(i): each pair of dimensions is rotated by position · frequency.

    Attributes:
        frequencies: radians per position of each pair.
        pairs: which dimensions form a pair.
        d: how many dimensions are rotated, the first ones; ``None`` means all.
    """

    frequencies: Frequencies
    pairs: HalfPairs
    d: int | None = None

    @property
    def needs_length(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the angles depend on the length of the text."""
        return self.frequencies.needs_length

    def query(self, q: Heads, context: Context, tap: Tap) -> Heads:
        """R(i)·q_i."""
        return tap(Point.ROT_Q, self.in_context(q, context))

    def key(self, k: Heads, context: Context, tap: Tap) -> Heads:
        """R(j)·k_j."""
        return tap(Point.ROT_K, self.in_context(k, context))

    def in_context(self, x: Heads, context: Context) -> Heads:
        """R(position)·x at the positions of a context."""
        d = self.d or x.shape[-1]

        def compute() -> tuple[Tensor, Tensor]:
            lengths = context.lengths if self.frequencies.needs_length else None
            rates = self.frequencies.rates(d, lengths).to(x.device)
            rates = rates if lengths is None else rates[:, None]
            phase = context.positions[..., None].double() * rates
            return self._cos_sin(phase[:, :, None], x.dtype)

        return self._rotate(x, *context.once((self, d, x.dtype), compute))

    def rotated(
        self, x: Float[Tensor, "... d_head"], positions: Tensor
    ) -> Float[Tensor, "... d_head"]:
        """R(position)·x for ``x`` of any leading shape that ``positions`` broadcasts to.

        Where frequencies depend on the length of the text: those of texts no longer than the model
        was trained on.
        """
        rates = self.frequencies.rates(self.d or x.shape[-1], None)
        phase = positions[..., None].double() * rates.to(positions.device)
        return self._rotate(x, *self._cos_sin(phase, x.dtype))

    def _cos_sin(self, phase: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        amplitude = self.frequencies.amplitude
        return (amplitude * phase.cos()).to(dtype), (amplitude * phase.sin()).to(dtype)

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x, rest = (x, None) if self.d is None else (x[..., : self.d], x[..., self.d :])
        first, second = self.pairs.split(x)
        rotated = self.pairs.join(first * cos - second * sin, second * cos + first * sin)
        return rotated if rest is None else torch.cat([rotated, rest], dim=-1)

    def layout(self, query: Place, key: Place) -> Layout:
        """Queries and keys after the rotation."""

        def rotated(source: Place) -> Recipe:
            def compute(attn: Any, of: Reader) -> Tensor:  # noqa: ANN401 - the attention itself
                return attn.positions.in_context(of(source.point), of.context)

            return Recipe(compute, needs=(source,))

        return {Place(Point.ROT_Q): rotated(query), Place(Point.ROT_K): rotated(key)}
