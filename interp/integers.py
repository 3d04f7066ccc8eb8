"""Integers of any type: Python's, NumPy's, PyTorch's; never booleans, the elements of a mask.

As arguments they are checked by :func:`integer`, :func:`at_least`, :func:`within` and
:func:`as_seed`.
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


def integer(given: object, name: str) -> int:
    """The argument ``name`` as an ``int``.

    Raises:
        InvalidInput: it is no integer.
    """
    number = as_integer(given)
    if number is None:
        raise InvalidInput(f"{name}={shorten(given)} must be an integer.")
    return number


def at_least(least: int, given: object, name: str) -> int:
    """The argument ``name`` as an ``int``.

    Raises:
        InvalidInput: it is no integer, or below ``least``.
    """
    number = as_integer(given)
    if number is None or number < least:
        raise InvalidInput(f"{name}={shorten(given)} must be an integer of at least {least}.")
    return number


def within(least: int, most: int, given: object, name: str) -> int:
    """The argument ``name`` as an ``int``.

    Raises:
        InvalidInput: it is no integer from ``least`` to ``most``.
    """
    number = as_integer(given)
    if number is None or not least <= number <= most:
        raise InvalidInput(f"{name}={shorten(given)} must be an integer from {least} to {most}.")
    return number


def as_seed(given: object) -> int:
    """The argument ``seed`` as an ``int``.

    Raises:
        InvalidInput: it is no integer of 64 bits.
    """
    number = as_integer(given)
    if number is None or not -SEEDS // 2 <= number < SEEDS:
        raise InvalidInput(f"seed={shorten(given)} must be an integer of 64 bits.")
    return number
