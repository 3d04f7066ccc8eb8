"""Colour scales of the widget."""

from math import isnan
from typing import Any

from torch import Tensor


def signed_scale(values: Tensor) -> dict[str, Any]:
    """The scale from −x to x, where x is the largest absolute value."""
    largest = float(values.abs().nan_to_num().max()) if values.numel() else 0.0
    return {"kind": "diverging", "low": -(largest or 1.0), "high": largest or 1.0}


PROBABILITIES = {"kind": "sequential", "low": 0.0, "high": 1.0}


def size_of(effect: float) -> float:
    """The absolute value of an effect; 0 if it is NaN."""
    return 0.0 if isnan(effect) else abs(effect)
