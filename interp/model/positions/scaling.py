"""Rotary frequencies scaled so that a model trained on short texts reads longer ones.

linear     every frequency divided by one factor                     (Chen et al. 2023)
dynamic    the base grows with the length of the text ("NTK-aware")  (bloc97 and emozilla, 2023)
llama3     low frequencies divided, high ones kept, interpolated between (Llama 3.1, 2024)
yarn       likewise, by the number of rotations over the context     (Peng et al. 2023)
longrope   a factor per pair, one set for short and one for long texts (Ding et al. 2024)
"""

from dataclasses import dataclass
from math import ceil, floor, log, pi
from typing import ClassVar

import torch

from interp.config import ScalingConfig
from interp.model.positions.rotary import Frequencies, Lengths, Rates, plain


@dataclass(frozen=True)
class ScaledFrequencies(Frequencies):
    """Frequencies scaled by ``scaling``.

    Attributes:
        scaling: the scaling factor, the trained context, and so on.
    """

    scaling: ScalingConfig

    @property
    def amplitude(self) -> float:
        """Factor of sine and cosine."""
        return self.scaling.amplitude


@dataclass(frozen=True)
class LinearScaling(ScaledFrequencies):
    """1 / (factor · base^(2i/d))."""

    def rates(self, d: int, lengths: Lengths) -> Rates:  # noqa: ARG002
        """Radians per position."""
        return plain(d, self.base) / self.scaling.factor


@dataclass(frozen=True)
class DynamicScaling(ScaledFrequencies):
    """Frequencies of base · (factor · n/n₀ − (factor − 1))^(d/(d−2)) for a text of n tokens."""

    needs_length: ClassVar[bool] = True

    def rates(self, d: int, lengths: Lengths) -> Rates:
        """Radians per position, one row per text."""
        if lengths is None:
            return plain(d, self.base)
        scaling = self.scaling
        times = lengths.double().clamp(min=scaling.original_ctx) / scaling.original_ctx
        grown = self.base * (scaling.factor * times - (scaling.factor - 1)) ** (d / (d - 2))
        return plain(d, grown[:, None], lengths.device)


@dataclass(frozen=True)
class Llama3Scaling(ScaledFrequencies):
    """Pairs that rotate less than ``low`` times over the trained context are divided by factor."""

    def rates(self, d: int, lengths: Lengths) -> Rates:  # noqa: ARG002
        """Radians per position."""
        rates, scaling = plain(d, self.base), self.scaling
        rotations = scaling.original_ctx * rates / (2 * pi)
        share = ((rotations - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)
        return share * rates + (1 - share) * rates / scaling.factor


@dataclass(frozen=True)
class YarnScaling(ScaledFrequencies):
    """Pairs between ``beta_fast`` and ``beta_slow`` rotations are interpolated."""

    def rates(self, d: int, lengths: Lengths) -> Rates:  # noqa: ARG002
        """Radians per position."""
        scaling = self.scaling
        low, high = self._pair(d, scaling.beta_fast), self._pair(d, scaling.beta_slow)
        if scaling.truncate:
            low, high = floor(low), ceil(high)
        low, high = max(low, 0), min(high, d - 1)
        width = high - low if high != low else 0.001
        slowed = ((torch.arange(d // 2).double() - low) / width).clamp(0, 1)
        rates = plain(d, self.base)
        return slowed * rates / scaling.factor + (1 - slowed) * rates

    def _pair(self, d: int, rotations: float) -> float:
        """The pair that rotates ``rotations`` times over the trained context."""
        return d * log(self.scaling.original_ctx / (rotations * 2 * pi)) / (2 * log(self.base))


@dataclass(frozen=True)
class LongRopeScaling(ScaledFrequencies):
    """Each pair is divided by its own factor; texts over the trained context use other factors."""

    needs_length: ClassVar[bool] = True

    def rates(self, d: int, lengths: Lengths) -> Rates:
        """Radians per position, one row per text."""
        scaling = self.scaling
        short = plain(d, self.base) / torch.tensor(scaling.short, dtype=torch.float64)
        if lengths is None:
            return short
        long = plain(d, self.base) / torch.tensor(scaling.long, dtype=torch.float64)
        is_long = (lengths > scaling.original_ctx)[:, None]
        return torch.where(is_long, long.to(lengths.device), short.to(lengths.device))


KINDS: dict[str, type[ScaledFrequencies]] = {
    "linear": LinearScaling,
    "dynamic": DynamicScaling,
    "llama3": Llama3Scaling,
    "yarn": YarnScaling,
    "longrope": LongRopeScaling,
}


def scaled_frequencies(base: float, scaling: ScalingConfig) -> ScaledFrequencies:
    """The frequencies of a configuration."""
    return KINDS[scaling.kind](base, scaling)
