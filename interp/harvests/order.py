"""The order in which rows are read: a permutation of all rows, drawn once by seed.

    order = numpy.random.default_rng([seed, epoch]).permutation(n_rows)

Every row stands exactly once in an epoch, and may stand anywhere in it: it is a permutation of the
whole harvest, not of a buffer. It takes 4 bytes of memory a row (8 beyond 2³² rows) while an epoch
is read: of rows of 768 bfloat16 numbers, 0.3 % of their bytes.
"""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.integer]


def order_of(n_rows: int, seed: int, epoch: int) -> Rows:
    """The permutation of the rows of an epoch, ``[row]``."""
    dtype = np.uint32 if n_rows <= 2**32 else np.int64
    order = np.arange(n_rows, dtype=dtype)
    np.random.default_rng([seed % 2**64, epoch]).shuffle(order)
    return order
