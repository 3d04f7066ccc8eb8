"""The largest entries of a low-rank matrix, which is formed one block at a time, in one buffer.

Memory that is allocated and freed for each block is not reused by the C library's allocator as soon
as smaller results lie between the blocks: with a vocabulary of 49,152, it grows by gigabytes.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.io import ProgressLike, as_progress
from interp.linalg import LowRank

ROWS, COLUMNS = 512, 1024
"""Size of the blocks whose maxima are taken: few enough entries for the processor's cache."""
ENTRIES = 2**21
"""Number of entries of the blocks of whole rows."""


def top_columns(matrix: LowRank, k: int) -> tuple[Int[Tensor, "row k"], Float[Tensor, "row k"]]:
    """The ``k`` largest entries of each row (or all, if there are fewer): columns and values."""
    n_rows, n_columns = matrix.shape
    most = min(k, n_columns)
    size = min(n_rows, max(1, ENTRIES // n_columns))
    top = [block.topk(most, -1) for _, _, block in _blocks(matrix, size, n_columns)]
    return torch.cat([part.indices for part in top]), torch.cat([part.values for part in top])


def strongest(
    matrix: LowRank, k: int, progress: ProgressLike = None
) -> tuple[Int[Tensor, " row"], Int[Tensor, " column"]]:
    """The ``k`` rows (or all) with the largest maxima, in descending order, and such columns.

    Args:
        matrix: the matrix.
        k: number of rows, and of columns.
        progress: called with the number of rows searched, and of all rows.
    """
    n_rows, n_columns = matrix.shape
    report = as_progress(progress, "tokens")
    of_rows, of_columns = (matrix.left.new_full((n,), -torch.inf) for n in (n_rows, n_columns))
    size = min(n_rows, ROWS), min(n_columns, COLUMNS)
    for rows, columns, block in _blocks(matrix, *size):
        torch.maximum(of_rows[rows], block.amax(-1), out=of_rows[rows])
        torch.maximum(of_columns[columns], block.amax(0), out=of_columns[columns])
        if report is not None and columns.stop == n_columns:
            report(rows.stop, n_rows)
    row, column = (
        magnitudes.topk(min(k, len(magnitudes))).indices for magnitudes in (of_rows, of_columns)
    )
    return row, column


def _blocks(
    matrix: LowRank, height: int, width: int
) -> Iterator[tuple[slice, slice, Float[Tensor, "row column"]]]:
    """The blocks of the matrix with their rows and columns; each overwrites the one before it."""
    n_rows, n_columns = matrix.shape
    buffer = matrix.left.new_empty(height * width)
    for first in range(0, n_rows, height):
        rows = slice(first, min(first + height, n_rows))
        for start in range(0, n_columns, width):
            columns = slice(start, min(start + width, n_columns))
            left, right = matrix.left[rows], matrix.right[:, columns]
            shape = len(left), right.shape[1]
            block = buffer[: shape[0] * shape[1]].view(shape)
            yield rows, columns, torch.mm(left, right, out=block)
