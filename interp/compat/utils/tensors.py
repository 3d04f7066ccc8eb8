"""Small functions on tensors: conversion to NumPy, corners, shapes, cumulative sums."""
# ruff: noqa: T201 - positional flags and prints, as in TransformerLens

from collections.abc import Mapping
from typing import Any

import einops
import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InvalidInput, shorten

MATRIX = 2
"""Number of axes of a matrix."""


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


def transpose(tensor: Float[Tensor, "*batch a b"]) -> Float[Tensor, "*batch b a"]:
    """Transpose the last two axes."""
    return tensor.mT


def is_square(x: Tensor) -> bool:
    """Whether ``x`` is a matrix with as many rows as columns."""
    return x.ndim == MATRIX and x.shape[0] == x.shape[1]


def is_lower_triangular(x: Tensor) -> bool:
    """Whether ``x`` is a square matrix with zeros above the diagonal."""
    return is_square(x) and x.equal(x.tril())


def check_structure(t1: Tensor, t2: Tensor, *, verbose: bool = False) -> None:
    """Print whether neighbouring entries of two matrices are in the same order.

    Prints ``PASSED``, or the rows (if those agree, the columns) i for which the order of i and
    i + 1 differs somewhere.

    Raises:
        InvalidInput: the arguments are not matrices of the same shape.
    """
    if t1.ndim != MATRIX or t1.shape != t2.shape:
        raise InvalidInput(
            f"check_structure compares two matrices of equal shape; got {tuple(t1.shape)} and "
            f"{tuple(t2.shape)}."
        )
    mismatched: dict[str, list[int]] = {}
    for name, label, first, second in (
        ("row", "rows", t1, t2),
        ("column", "columns", t1.mT, t2.mT),
    ):
        if verbose:
            print(f"Checking {label}")
        orders = [one[:-1] >= one[1:] for one in (first, second)]
        mismatched[name] = (orders[0] != orders[1]).any(-1).nonzero()[:, 0].tolist()
        for at in mismatched[name] if verbose else ():
            print(f"\t{label} {at}:{at + 1}")
            print(f"\tt1: {orders[0][at].tolist()}")
            print(f"\tt2: {orders[1][at].tolist()}")
    found = next((name for name in mismatched if mismatched[name]), None)
    print("PASSED" if found is None else f"{found} mismatch: {mismatched[found]}")


def get_offset_position_ids(
    past_kv_pos_offset: int, attention_mask: Int[Tensor, "batch offset_pos"]
) -> Int[Tensor, "batch pos"]:
    """Positions among the attended tokens (0 for leading padding), without the cached columns.

    Args:
        past_kv_pos_offset: number of columns in the KV cache.
        attention_mask: 1 for tokens that are attended to.
    """
    return (attention_mask.cumsum(1) - 1).clamp(min=0)[:, past_kv_pos_offset:]


def get_cumsum_along_dim(tensor: Tensor, dim: int, reverse: bool = False) -> Tensor:
    """Cumulative sum along an axis, from its end if ``reverse`` is set."""
    if not reverse:
        return tensor.cumsum(dim)
    return tensor.flip(dim).cumsum(dim).flip(dim)


def repeat_along_head_dimension(
    tensor: Float[Tensor, "batch pos d_model"], n_heads: int, clone_tensor: bool = True
) -> Float[Tensor, "batch pos n_heads d_model"]:
    """Repeat a tensor for each head; without ``clone_tensor``, the copies share memory."""
    repeated = einops.repeat(tensor, "batch pos d_model -> batch pos head d_model", head=n_heads)
    return repeated.clone() if clone_tensor else repeated


def filter_dict_by_prefix(dictionary: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The entries whose keys have a prefix, with the prefix and its dot removed."""
    start = prefix if prefix.endswith(".") else f"{prefix}."
    return {key.removeprefix(start): v for key, v in dictionary.items() if key.startswith(start)}
