"""Is the shift of positions k → k + n one linear map? A fit of p_{k+n} ≈ p_k R + b over a table.

The map is fitted by ridge regression to some rows of a table of position embeddings and predicts
the others. Its control is the same fit to rows that are permuted, where no map is to be found; a
plain least-squares fit would go through any rows that are no more than their dimensions. A second
control is no map at all, p_{k+n} ≈ p_k, which is good wherever the table changes slowly.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from interp.regression.ridge import Ridge, held_out_r2, random_folds

FOLDS = 5
FEWEST_ROWS = 2 * FOLDS
"""Pairs of positions below which nothing is fitted."""


@dataclass(frozen=True, eq=False)
class ShiftFit:
    """How well shifts are linear maps of a table.

    Attributes:
        offsets: by how many positions; those that leave too few pairs of positions are left out.
        r2: share of the variance of p_{k+n} that the map explains of positions held out.
        control: the same where p_{k+n} are permuted, of each draw.
        unchanged: of p_k in place of p_{k+n}; NaN, as R², where p_{k+n} does not vary.
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
        offsets: by how many positions, at least 1.
        draws: how many permutations the control has.
        seed: of what is held out and of the permutations.
    """
    generator = torch.Generator().manual_seed(seed)
    kept = tuple(n for n in offsets if len(table) - n >= FEWEST_ROWS)
    r2, control = table.new_zeros(len(kept)).double(), table.new_zeros(len(kept), draws).double()
    unchanged = torch.zeros_like(r2)
    for row, n in enumerate(kept):
        before, after = table[:-n], table[n:]
        orders = [torch.randperm(len(after), generator=generator) for _ in range(draws)]
        targets = torch.stack([after, *(after[order] for order in orders)])
        found = held_out_r2(before, targets, random_folds(len(after), FOLDS, generator))
        r2[row], control[row] = found[0], found[1:]
        total = (after - after.mean(0)).square().sum()
        unchanged[row] = 1 - (after - before).square().sum() / total.where(total > 0, torch.nan)
    return ShiftFit(kept, r2, control, unchanged)


def shift_eigenvalues(table: Float[Tensor, "pos dim"]) -> Complex[Tensor, " eigenvalue"]:
    """The eigenvalues of the map fitted to k → k + 1, but those that are 0 for lack of rank.

    Those of a table of rotations, such as sinusoidal positions, are on the unit circle; a component
    that decays has one within. None of a table too short for :func:`fit_shifts`.
    """
    rows = table.double()
    if len(rows) - 1 < FEWEST_ROWS:
        return rows.new_zeros(0, dtype=torch.complex128)
    W = Ridge(rows[:-1]).fit(rows[1:]).W
    centred = rows[:-1] - rows[:-1].mean(0)
    basis = torch.linalg.svd(centred, full_matrices=False).Vh
    return torch.linalg.eigvals(basis @ W @ basis.mT)
