"""The frequencies of rotary positions: 1 / base^(2i/d) radians per position for pair i."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

Rates = Float[Tensor, "*row pair"]
"""Radians per position; one row per text where they depend on its length."""
Lengths = Int[Tensor, " row"] | None
"""Tokens of each text; ``None`` stands for no more than the model was trained on."""


@dataclass(frozen=True)
class Frequencies:
    """1 / base^(2i/d); the base class of those that are scaled for longer texts.

    Attributes:
        base: of the wavelengths.
    """

    base: float
    needs_length: ClassVar[bool] = False
    """Whether they depend on the length of the text."""

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
