"""Small functions on tensors: conversion to NumPy, corners, shapes; and the default device."""

import os
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.compat.errors import InvalidInput
from interp.errors import shorten

MATRIX = 2
"""Number of axes of a matrix."""
ALLOW_MPS = "TRANSFORMERLENS_ALLOW_MPS"
"""The environment variable that allows MPS as the default device."""


def to_numpy(tensor: Any) -> Any:
    """Convert a tensor (detached; bfloat16 as float32), list or number to a NumPy array.

    Raises:
        InvalidInput: the argument is something else.
    """
    if isinstance(tensor, Tensor):
        detached = tensor.detach().cpu()
        return (detached.float() if detached.dtype == torch.bfloat16 else detached).numpy()
    if isinstance(tensor, np.ndarray):
        return tensor
    if isinstance(tensor, list | tuple | int | float | bool | str):
        return np.array(tensor)
    raise InvalidInput(
        f"to_numpy takes a tensor, an array, a list, a tuple or a number, not {shorten(tensor)}."
    )


def get_corner(tensor: Any, n: int = 3) -> Any:
    """The first ``n`` entries along each axis."""
    return tensor[(slice(n),) * tensor.ndim]


def remove_batch_dim(tensor: Tensor) -> Tensor:
    """Remove the first axis if its size is 1."""
    return tensor[0] if tensor.shape[0] == 1 else tensor


def is_square(x: Tensor) -> bool:
    """Whether ``x`` is a matrix with as many rows as columns."""
    return x.ndim == MATRIX and x.shape[0] == x.shape[1]


def is_lower_triangular(x: Tensor) -> bool:
    """Whether ``x`` is a square matrix with zeros above the diagonal."""
    return is_square(x) and x.equal(x.tril())


def get_device() -> str:
    """``cuda`` if available, ``mps`` if allowed (TRANSFORMERLENS_ALLOW_MPS=1), else ``cpu``."""
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available() and os.environ.get(ALLOW_MPS) == "1":
        return "mps"
    return "cpu"


def get_offset_position_ids(past_kv_pos_offset: int, attention_mask: Tensor) -> Tensor:
    """The index of each new token among the real tokens of its row ``[batch pos]``.

    Args:
        past_kv_pos_offset: the number of earlier positions.
        attention_mask: 0 at padding, ``[batch earlier+pos]``; padding at the start has index 0.
    """
    return (attention_mask.cumsum(1) - 1).clamp(min=0)[:, past_kv_pos_offset:]
