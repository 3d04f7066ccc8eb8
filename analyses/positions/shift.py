"""Is the shift of positions k → k + n a linear map? A fit of p_{k+n} ≈ p_k R + b over a table.

The map is fitted by ridge regression to some rows of a table of position embeddings, and predicts
the others. Its control is the same fit to permuted rows, for which there is no map to find; plain
least squares would fit any rows exactly if there are no more rows than dimensions. A second control
is no map at all, p_{k+n} ≈ p_k, which is a good prediction wherever the table changes slowly.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from analyses.methods.ridge import Ridge, held_out_r2, random_folds

FOLDS = 5
FEWEST_ROWS = 2 * FOLDS
"""Smallest number of pairs of positions to which a map is fitted."""


@dataclass(frozen=True, eq=False)
class ShiftFit:
    """How well shifts are described by linear maps of a table.

    All values are R², and NaN where p_{k+n} does not vary.

    Attributes:
        offsets: the offsets, in positions, except those with too few pairs of positions.
        r2: share of the variance of p_{k+n} at held-out positions that the map explains.
        control: likewise, with p_{k+n} permuted, for each draw.
        unchanged: likewise, with p_k as the prediction of p_{k+n}.
    """

    offsets: tuple[int, ...]
    r2: Float[Tensor, " offset"]
    control: Float[Tensor, "offset draw"]
    unchanged: Float[Tensor, " offset"]


def fit_shifts(
    table: Float[Tensor, "pos dim"], offsets: Sequence[int], *, draws: int, seed: int
) -> ShiftFit:
    """Fit the map of each offset.

    Args:
        table: the position embeddings.
        offsets: the offsets in positions, at least 1.
        draws: number of permutations in the control.
        seed: seed of the folds and of the permutations.
    """
    generator = torch.Generator().manual_seed(seed)
    measured = tuple(n for n in offsets if len(table) - n >= FEWEST_ROWS)
    r2 = table.new_zeros(len(measured)).double()
    control = table.new_zeros(len(measured), draws).double()
    unchanged = torch.zeros_like(r2)
    for row, n in enumerate(measured):
        before, after = table[:-n], table[n:]
        orders = [torch.randperm(len(after), generator=generator) for _ in range(draws)]
        targets = torch.stack([after, *(after[order] for order in orders)])
        scores = held_out_r2(before, targets, random_folds(len(after), FOLDS, generator))
        r2[row], control[row] = scores[0], scores[1:]
        total = (after - after.mean(0)).square().sum()
        unchanged[row] = 1 - (after - before).square().sum() / total.where(total > 0, torch.nan)
    return ShiftFit(measured, r2, control, unchanged)


def shift_eigenvalues(table: Float[Tensor, "pos dim"]) -> Complex[Tensor, " eigenvalue"]:
    """The eigenvalues of the map fitted to k → k + 1, except those that are 0 for lack of rank.

    The eigenvalues of a table of rotations, such as sinusoidal positions, are on the unit circle;
    the eigenvalue of a component that decays is inside it. A table too short for :func:`fit_shifts`
    has none.
    """
    rows = table.double()
    if len(rows) - 1 < FEWEST_ROWS:
        return rows.new_zeros(0, dtype=torch.complex128)
    W = Ridge(rows[:-1]).fit(rows[1:]).W
    centred = rows[:-1] - rows[:-1].mean(0)
    basis = torch.linalg.svd(centred, full_matrices=False).Vh
    return torch.linalg.eigvals(basis @ W @ basis.mT)
