"""Scales of the widget's colours."""

from math import isnan
from typing import Any

from torch import Tensor


def signed_scale(values: Tensor) -> dict[str, Any]:
    """From −x to x, centred at zero, where x is the largest size."""
    largest = float(values.abs().nan_to_num().max()) if values.numel() else 0.0
    return {"kind": "diverging", "low": -(largest or 1.0), "high": largest or 1.0}


PROBABILITIES = {"kind": "sequential", "low": 0.0, "high": 1.0}


def size_of(effect: float) -> float:
    """Its absolute value; 0 of one that is not known."""
    return 0.0 if isnan(effect) else abs(effect)
