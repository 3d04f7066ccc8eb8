"""What a figure shows, without how it is drawn: numbers, labels, units and scales."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

Numbers = Tensor | Sequence[Any]
"""Numbers in a tensor or in lists of any depth."""


@dataclass(frozen=True)
class Scale:
    """The range of values that colours or lengths stand for.

    Attributes:
        kind: ``diverging`` if zero is the middle of the colours, ``sequential`` if it is one end.
        low: the lower end.
        high: the upper end.
    """

    kind: Literal["sequential", "diverging"]
    low: float
    high: float

    @classmethod
    def around_zero(cls, values: Numbers, least: float = 0.0) -> "Scale":
        """From −x to x, where x is the largest absolute value, or ``least`` if that is larger.

        If both are 0, x is 1.
        """
        high = max(_largest(values), least) or 1.0
        return cls("diverging", -high, high)

    @classmethod
    def from_zero(cls, values: Numbers, least: float = 0.0) -> "Scale":
        """From 0 to that x."""
        return cls("sequential", 0.0, cls.around_zero(values, least).high)


PROBABILITIES = Scale("sequential", 0.0, 1.0)


def _largest(values: Numbers) -> float:
    """The largest absolute value that is finite; 0 if there is none."""
    sizes = torch.as_tensor(values, dtype=torch.float64).abs()
    return max(sizes[sizes.isfinite()].tolist(), default=0.0)
