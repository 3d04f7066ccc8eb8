"""The largest entries of a low-rank matrix, of which only some rows are formed at a time."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.linalg import LowRank

ENTRIES = 2**21
"""Number of entries formed at a time: few enough to stay in the processor's cache."""


def top_columns(matrix: LowRank, k: int) -> tuple[Int[Tensor, "row k"], Float[Tensor, "row k"]]:
    """The ``k`` largest entries of each row (or all, if there are fewer): columns and values."""
    most = min(k, matrix.shape[1])
    top = [rows.topk(most, -1) for rows in _rows(matrix)]
    return torch.cat([part.indices for part in top]), torch.cat([part.values for part in top])


def strongest(
    matrix: LowRank, k: int, progress: Callable[[int, int], None] | None = None
) -> tuple[Int[Tensor, " row"], Int[Tensor, " column"]]:
    """The ``k`` rows (or all) with the largest maxima, in descending order, and such columns.

    Args:
        matrix: the matrix.
        k: number of rows, and of columns.
        progress: called with the number of rows searched, and of all rows.
    """
    of_rows, of_columns = list[Tensor](), torch.full_like(matrix.right[0], -torch.inf)
    searched = 0
    for rows in _rows(matrix):
        of_rows.append(rows.amax(-1))
        of_columns = torch.maximum(of_columns, rows.amax(0))
        searched += len(rows)
        if progress is not None:
            progress(searched, matrix.shape[0])
    row, column = (own.topk(min(k, len(own))).indices for own in (torch.cat(of_rows), of_columns))
    return row, column


def _rows(matrix: LowRank) -> Iterator[Float[Tensor, "row column"]]:
    """The rows of the matrix, some at a time."""
    size = max(1, ENTRIES // matrix.shape[1])
    for part in matrix.left.split(size):
        yield part @ matrix.right
