"""Integers of Python, NumPy and PyTorch, but not booleans, which are elements of a mask.

:func:`integer`, :func:`at_least`, :func:`within` and :func:`as_seed` check arguments.
"""

from operator import index

import numpy as np
import torch
from torch import Tensor

from interp.errors import InvalidInput, shorten

SEEDS = 2**64
"""Number of different seeds of a PyTorch generator."""


def whole_number(value: object) -> int:
    """``value`` as an ``int``.

    Raises:
        TypeError: it is not an integer, or it is a boolean.
    """
    is_tensor = isinstance(value, Tensor)
    if isinstance(value, bool | np.bool_) or (is_tensor and value.dtype == torch.bool):
        raise TypeError(f"{value!r} is a boolean")
    return index(value)  # pyright: ignore[reportArgumentType] - raises TypeError otherwise


def as_integer(value: object) -> int | None:
    """``value`` as an ``int``; ``None`` if it is not an integer, or is a boolean."""
    try:
        return whole_number(value)
    except TypeError:
        return None


def integer(value: object, name: str) -> int:
    """The argument ``name`` as an ``int``.

    Raises:
        InvalidInput: it is not an integer.
    """
    number = as_integer(value)
    if number is None:
        raise InvalidInput(f"{name}={shorten(value)} must be an integer.")
    return number


def at_least(least: int, value: object, name: str) -> int:
    """The argument ``name`` as an ``int``.

    Raises:
        InvalidInput: it is not an integer, or is below ``least``.
    """
    number = as_integer(value)
    if number is None or number < least:
        raise InvalidInput(f"{name}={shorten(value)} must be an integer of at least {least}.")
    return number


def within(least: int, most: int, value: object, name: str) -> int:
    """The argument ``name`` as an ``int``.

    Raises:
        InvalidInput: it is not an integer from ``least`` to ``most``.
    """
    number = as_integer(value)
    if number is None or not least <= number <= most:
        raise InvalidInput(f"{name}={shorten(value)} must be an integer from {least} to {most}.")
    return number


def as_seed(value: object) -> int:
    """The argument ``seed`` as an ``int``.

    Raises:
        InvalidInput: it is not an integer of 64 bits.
    """
    number = as_integer(value)
    if number is None or not -SEEDS // 2 <= number < SEEDS:
        raise InvalidInput(f"seed={shorten(value)} must be an integer of 64 bits.")
    return number
