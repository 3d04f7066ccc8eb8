"""Pairs of dimensions: which two of a vector belong together, and the angle of each pair.

Rotary positions rotate pairs; sinusoidal positions write sine and cosine into them.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from interp.config import Layout as PairLayout


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


def angles(positions: Tensor, d: int, base: float) -> Float[Tensor, "*positions d_half"]:
    """Position / base^(2i/d), in float64: the angle of pair i at each position."""
    wavelengths = base ** (torch.arange(0, d, 2, device=positions.device).double() / d)
    return positions[..., None].double() / wavelengths
