"""Ridge regression in closed form: a linear map that predicts y from x, even if x lacks full rank.

    minimize  ‖y − x W − b‖² + λ‖W‖²          W = (x̃ᵀx̃ + λ)⁻¹ x̃ᵀỹ, where x̃ and ỹ are centred

λ is chosen by leave-one-out error, which needs no further fit: the error of a row is
residual / (1 − h), where h is the leverage of the row (Golub, Heath and Wahba 1979). The choices
include an infinite λ, which predicts the mean: where x carries no information about y, none is
predicted. Without a penalty, fewer rows than dimensions would be fitted exactly, and predictions
for other rows would be arbitrary.
"""

from dataclasses import dataclass
from functools import cached_property
from math import inf

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InvalidInput

PENALTIES = (inf, 1e2, 1.0, 1e-2, 1e-4, 1e-6, 1e-8)
"""Choices of λ, relative to the mean square of the singular values of x̃; the first wins a tie."""


@dataclass(frozen=True, eq=False)
class LinearMap:
    """x ↦ x W + b.

    Attributes:
        W: the matrix.
        b: the intercept.
    """

    W: Float[Tensor, "dim_in dim_out"]
    b: Float[Tensor, " dim_out"]

    def __call__(self, x: Float[Tensor, "row dim_in"]) -> Float[Tensor, "row dim_out"]:
        """The prediction for each row."""
        return x @ self.W + self.b


class Ridge:
    """Ridge regressions of any number of targets on the same rows, decomposed only once.

    Args:
        x: the rows to predict from, at least two; they are converted to float64.

    Raises:
        InvalidInput: there are fewer than two rows, or values are not finite.
    """

    def __init__(self, x: Float[Tensor, "row dim_in"]) -> None:
        if len(x) < 2:  # noqa: PLR2004 - a mean and a difference from it
            raise InvalidInput(f"A ridge regression needs at least two rows; got {len(x)}.")
        if not bool(x.isfinite().all()):
            raise InvalidInput("The rows of a ridge regression have values that are not finite.")
        rows = x.double()
        self.mean = rows.mean(0)
        self._U, self._s, self._Vt = torch.linalg.svd(rows - self.mean, full_matrices=False)

    def fit(self, y: Float[Tensor, "row dim_out"]) -> LinearMap:
        """The map with the λ that has the least leave-one-out error."""
        mean = y.double().mean(0)
        coefficients = self._U.mT @ (y.double() - mean)
        errors = [
            self._left_out(y.double() - mean, coefficients, shrinkage)
            for shrinkage in self._shrinkages
        ]
        best = self._shrinkages[int(torch.stack(errors).argmin())]
        inverse = torch.where(self._s > 0, best / self._s.clamp(min=1e-300), 0.0)
        W = self._Vt.mT @ (inverse[:, None] * coefficients)
        return LinearMap(W, mean - self.mean @ W)

    @cached_property
    def _shrinkages(self) -> Float[Tensor, "penalty rank"]:
        """s² / (s² + λ) for each λ."""
        squares = self._s.square()
        relative = torch.tensor(PENALTIES, dtype=squares.dtype, device=squares.device)
        penalties = relative[:, None] * squares.mean().clamp(min=1e-300)
        return squares / (squares + penalties)

    def _left_out(
        self,
        y: Float[Tensor, "row dim_out"],
        coefficients: Float[Tensor, "rank dim_out"],
        shrinkage: Float[Tensor, " rank"],
    ) -> Float[Tensor, ""]:
        """The sum of squared leave-one-out errors."""
        residual = y - self._U @ (shrinkage[:, None] * coefficients)
        leverage = self._U.square() @ shrinkage + 1 / len(y)
        # 1 − h is 0 where only the row itself determines its prediction: the error is then unknown.
        return (residual / (1 - leverage).clamp(min=1e-9)[:, None]).square().sum()


def held_out_r2(
    x: Float[Tensor, "row dim_in"],
    targets: Float[Tensor, "target row dim_out"],
    folds: Int[Tensor, " row"],
) -> Float[Tensor, " target"]:
    """R² = 1 − Σ‖y − ŷ‖² / Σ‖y − ȳ‖², where each row is predicted from those of the other folds.

    ȳ is the mean of the rows that the prediction is fitted to, so R² is 0 if nothing is learned,
    and negative if the predictions are worse than that mean.

    Args:
        x: the rows to predict from.
        targets: the targets, one or more for the same rows.
        folds: the fold of each row; see :func:`random_folds`.

    Returns:
        R² of each target; NaN where the target does not vary.
    """
    y = targets.double()
    left = y.new_zeros(2, len(y))
    for fold in folds.unique():
        test = folds == fold
        ridge = Ridge(x[~test])
        for number, target in enumerate(y):
            fitted = ridge.fit(target[~test])
            expected = target[test]
            left[0, number] += (expected - fitted(x[test].double())).square().sum()
            left[1, number] += (expected - target[~test].mean(0)).square().sum()
    return 1 - left[0] / left[1].where(left[1] > 0, torch.nan)


def random_folds(n: int, folds: int, generator: torch.Generator) -> Int[Tensor, " row"]:
    """A random fold for each of ``n`` rows; the sizes of the folds differ by at most 1."""
    return (torch.arange(n) % folds)[torch.randperm(n, generator=generator)]
