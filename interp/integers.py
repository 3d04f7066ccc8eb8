"""Integers of any type: Python's, NumPy's, PyTorch's."""

from operator import index
from typing import SupportsIndex


def as_integer(value: object) -> int | None:
    """``value`` as an ``int``; ``None`` if it is no integer (truth values are none)."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return index(value)
    except TypeError:  # a tensor has __index__ and may hold a fraction
        return None
