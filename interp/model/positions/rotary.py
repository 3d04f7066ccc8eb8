"""Rotary positions: pairs of dimensions are rotated, so that q_i·k_j depends on i − j.

RoPE, Su et al. 2021. :mod:`interp.model.positions.scaling` has frequencies scaled for longer
texts.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.config import PairLayout
from interp.model.context import Context
from interp.model.positions.scheme import Heads, PositionScheme
from interp.model.recipe import Layout, Reader, Recipe
from interp.model.tap import Tap
from interp.points import Place, Point

Rates = Float[Tensor, "*row pair"]
"""Radians per position; one row per text if they depend on its length."""
Lengths = Int[Tensor, " row"] | None
"""Number of tokens of each text; ``None`` if none is longer than the trained context."""


@dataclass(frozen=True)
class Frequencies:
    """1 / base^(2i/d); the base class of frequencies scaled for longer texts.

    Attributes:
        base: base of the wavelengths.
    """

    base: float
    needs_length: ClassVar[bool] = False
    """Whether the frequencies depend on the length of the text."""

    @property
    def amplitude(self) -> float:
        """Factor of sine and cosine."""
        return 1.0

    def rates(self, d: int, lengths: Lengths) -> Rates:  # noqa: ARG002
        """Radians per position of the d/2 pairs, in float64."""
        return plain(d, self.base)


def plain(d: int, base: float | Tensor, device: torch.device | None = None) -> Rates:
    """1 / base^(2i/d)."""
    return 1.0 / base ** (torch.arange(0, d, 2, device=device).double() / d)


class HalfPairs:
    """Dimension i and dimension i + d/2 (GPT-NeoX, Llama)."""

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """First and second dimension of each pair, each ``[... d/2]``."""
        first, second = x.chunk(2, dim=-1)
        return first, second

    def join(self, first: Tensor, second: Tensor) -> Tensor:
        """The inverse of :meth:`split`."""
        return torch.cat([first, second], dim=-1)


class InterleavedPairs(HalfPairs):
    """Dimension 2i and dimension 2i + 1 (GPT-J, the original Transformer)."""

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """First and second dimension of each pair, each ``[... d/2]``."""
        return x[..., 0::2], x[..., 1::2]

    def join(self, first: Tensor, second: Tensor) -> Tensor:
        """The inverse of :meth:`split`."""
        return torch.stack([first, second], dim=-1).flatten(-2)


PAIRS: dict[PairLayout, HalfPairs] = {"half": HalfPairs(), "interleaved": InterleavedPairs()}


@dataclass(frozen=True)
class Rotary(PositionScheme):
    """R(i): each pair of dimensions is rotated by position · frequency.

    Attributes:
        frequencies: radians per position of each pair.
        pairs: which dimensions form a pair.
        d: number of dimensions that are rotated, starting with the first; ``None`` means all.
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

        If frequencies depend on the length of the text, those of texts within the trained context
        are used.
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
        """The places of queries and keys after the rotation."""

        def rotated(source: Place) -> Recipe:
            def compute(attn: Any, of: Reader) -> Tensor:  # noqa: ANN401 - the attention itself
                return attn.positions.in_context(of(source.point), of.context)

            return Recipe(compute, needs=(source,))

        return {Place(Point.ROT_Q): rotated(query), Place(Point.ROT_K): rotated(key)}
