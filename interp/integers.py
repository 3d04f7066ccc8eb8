"""Integers of any type: Python's, NumPy's, PyTorch's; never booleans, the elements of a mask.

As arguments they are checked by :func:`bounded`; those that seed a generator by :func:`as_seed`.
"""

from operator import index

import numpy as np
import torch
from torch import Tensor

from interp.errors import InvalidInput, shorten

SEEDS = 2**64
"""Seeds that a generator of PyTorch tells apart."""


def whole_number(value: object) -> int:
    """``value`` as an ``int``.

    Raises:
        TypeError: it is no integer, or a boolean.
    """
    is_tensor = isinstance(value, Tensor)
    if isinstance(value, bool | np.bool_) or (is_tensor and value.dtype == torch.bool):
        raise TypeError(f"{value!r} is a boolean")
    return index(value)  # pyright: ignore[reportArgumentType] - a TypeError, if it is none


def as_integer(value: object) -> int | None:
    """``value`` as an ``int``; ``None`` if it is no integer, or a boolean."""
    try:
        return whole_number(value)
    except TypeError:
        return None


def bounded(value: object, name: str, least: int, most: int | None = None) -> int:
    """The argument ``name`` as an ``int`` from ``least`` to ``most``.

    Raises:
        InvalidInput: it is something else.
    """
    number = as_integer(value)
    if number is None or number < least or (most is not None and number > most):
        which = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InvalidInput(f"{name}={shorten(value)} should be a whole number {which}.")
    return number


def as_seed(value: object) -> int:
    """The argument ``seed`` as an ``int``.

    Raises:
        InvalidInput: it is no integer of 64 bits.
    """
    number = as_integer(value)
    if number is None or not -SEEDS // 2 <= number < SEEDS:
        raise InvalidInput(f"seed={shorten(value)} should be a whole number of 64 bits.")
    return number
