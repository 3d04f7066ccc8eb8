"""Relative position bias between patches: a learned scalar per head and offset in two dimensions.

    bias[i, j] = table[row(i) − row(j), column(i) − column(j)]        for patches i and j

Three further entries of the table are for pairs with a special token, such as CLS: from it to a
patch, from a patch to it, and between special tokens (BEiT, Bao et al. 2022, arXiv:2106.08254).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.config import PatchConfig
from interp.model.context import Context
from interp.model.positions.relative_bias import RelativeBiasTable
from interp.model.positions.scheme import PositionBias, PositionScheme

N_SPECIAL_PAIRS = 3
"""From a special token to a patch, from a patch to a special token, between special tokens."""


@dataclass(frozen=True)
class GridOffsets:
    """The entry of the table for each query and key.

    Attributes:
        patches: the grid of patches, and the number of special tokens before them.
    """

    patches: PatchConfig

    @property
    def n_pairs(self) -> int:
        """Number of offsets between two patches."""
        return (2 * self.patches.n_rows - 1) * (2 * self.patches.n_columns - 1)

    @property
    def n(self) -> int:
        """Number of entries of the table."""
        return self.n_pairs + N_SPECIAL_PAIRS

    def __call__(
        self, queries: Int[Tensor, "batch query"], keys: Int[Tensor, "batch key"]
    ) -> Int[Tensor, "batch query key"]:
        """Indices of entries, from the positions of queries and keys."""
        n_special, n_columns = self.patches.n_special, self.patches.n_columns
        query, key = queries[:, :, None] - n_special, keys[:, None, :] - n_special
        rows = query // n_columns - key // n_columns + self.patches.n_rows - 1
        columns = query % n_columns - key % n_columns + n_columns - 1
        entry = rows * (2 * n_columns - 1) + columns
        entry = torch.where(query < 0, self.n_pairs, entry)
        entry = torch.where(key < 0, self.n_pairs + 1, entry)
        return torch.where((query < 0) & (key < 0), self.n_pairs + 2, entry)


@dataclass(frozen=True)
class GridBias(PositionScheme):
    """Adds table[offset of the query's patch from the key's] to each score.

    Attributes:
        table: the learned biases.
        offsets: the entry of each query and key.
    """

    has_bias = True
    table: RelativeBiasTable
    offsets: GridOffsets

    def bias(self, context: Context) -> PositionBias:
        """The table's entry for each query and key; a single row, as no row has padding."""

        def entries() -> Tensor:
            return self.offsets(context.positions[:1], context.key_positions[:1])

        return self.table.weight[context.once(self.offsets, entries)].movedim(-1, 1)

    def along_row(self) -> Float[Tensor, "offset head"]:
        """The biases between patches of one row, from the query first to the query last."""
        n_rows, n = self.offsets.patches.n_rows, 2 * self.offsets.patches.n_columns - 1
        return self.table.weight[(n_rows - 1) * n : n_rows * n]

    def along_column(self) -> Float[Tensor, "offset head"]:
        """The biases between patches of one column, from the query first to the query last."""
        n_columns = self.offsets.patches.n_columns
        return self.table.weight[n_columns - 1 : self.offsets.n_pairs : 2 * n_columns - 1]
