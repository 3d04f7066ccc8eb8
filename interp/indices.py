"""Indices: whole numbers of any type, and never booleans, which are the elements of a mask."""

from operator import index

import numpy as np
import torch
from torch import Tensor


def whole_number(value: object) -> int:
    """``value``, a whole number of any type.

    Raises:
        TypeError: it is none, or a boolean: an element of a mask is not an index.
    """
    is_tensor = isinstance(value, Tensor)
    if isinstance(value, bool | np.bool_) or (is_tensor and value.dtype == torch.bool):
        raise TypeError(f"{value!r} is a boolean")
    return index(value)  # pyright: ignore[reportArgumentType] - a TypeError, if it is none
