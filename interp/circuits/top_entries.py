"""The largest entries of a low-rank matrix, which is never formed whole but some rows at a time."""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.linalg import LowRank

ENTRIES = 2**24
"""Entries formed at a time."""


def top_columns(matrix: LowRank, k: int) -> tuple[Int[Tensor, "row k"], Float[Tensor, "row k"]]:
    """The ``k`` largest entries of each row (or all, if there are fewer): columns and values."""
    most = min(k, matrix.shape[1])
    found = [rows.topk(most, -1) for rows in _rows(matrix)]
    return torch.cat([own.indices for own in found]), torch.cat([own.values for own in found])


def top_rows(matrix: LowRank, k: int) -> Int[Tensor, " row"]:
    """The ``k`` rows (or all) whose largest entries are largest, in that order."""
    largest = torch.cat([rows.amax(-1) for rows in _rows(matrix)])
    return largest.topk(min(k, len(largest))).indices


def _rows(matrix: LowRank) -> Iterator[Float[Tensor, "row column"]]:
    """The rows, some at a time."""
    size = max(1, ENTRIES // matrix.shape[1])
    for part in matrix.left.split(size):
        yield part @ matrix.right
