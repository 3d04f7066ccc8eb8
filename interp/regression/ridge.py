"""Ridge regression in closed form: the linear map that predicts y from x, also where x lacks rank.

    minimize  ‖y − x W − b‖² + λ‖W‖²          W = (x̃ᵀx̃ + λ)⁻¹ x̃ᵀỹ, where x̃ and ỹ are centred

λ is chosen by the error of predicting each row from all the others, which needs no further fit: it
is residual / (1 − h) with the leverage h of the row (Golub, Heath and Wahba 1979). An infinite λ,
which predicts the mean, is one of the choices: where x says nothing of y, nothing is predicted.
Without a penalty, rows that are fewer than the dimensions are predicted perfectly, and others at
random.
"""

from dataclasses import dataclass
from functools import cached_property
from math import inf

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InvalidInput

PENALTIES = (inf, 1e2, 1.0, 1e-2, 1e-4, 1e-6, 1e-8)
"""Choices of λ, relative to the mean square of the singular values of x̃; the first of equals."""


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
    """Fits of any number of targets to the same rows, whose decomposition is computed once.

    Args:
        x: the rows to predict from, at least two; computed in float64.

    Raises:
        InvalidInput: fewer than two rows, or numbers that are not finite.
    """

    def __init__(self, x: Float[Tensor, "row dim_in"]) -> None:
        if len(x) < 2:  # noqa: PLR2004 - a mean and a difference from it
            raise InvalidInput(f"A ridge regression needs two rows or more; got {len(x)}.")
        if not bool(x.isfinite().all()):
            raise InvalidInput("The rows of a ridge regression have numbers that are not finite.")
        rows = x.double()
        self.mean = rows.mean(0)
        self._U, self._s, self._Vt = torch.linalg.svd(rows - self.mean, full_matrices=False)

    def fit(self, y: Float[Tensor, "row dim_out"]) -> LinearMap:
        """The map with the λ whose prediction of left-out rows is best."""
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
        """s² / (s² + λ) of each λ."""
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
        """The squared error of each row predicted from the others."""
        residual = y - self._U @ (shrinkage[:, None] * coefficients)
        leverage = self._U.square() @ shrinkage + 1 / len(y)
        # Where the others determine nothing of a row, its own prediction says nothing either.
        return (residual / (1 - leverage).clamp(min=1e-9)[:, None]).square().sum()


def held_out_r2(
    x: Float[Tensor, "row dim_in"],
    targets: Float[Tensor, "target row dim_out"],
    folds: Int[Tensor, " row"],
) -> Float[Tensor, " target"]:
    """1 − Σ‖y − ŷ‖² / Σ‖y − ȳ‖², each row predicted from those of the other folds.

    ȳ is the mean of the rows that the prediction is fitted to, so that R² is 0 where nothing is
    learned, and below 0 where what is learned misleads.

    Args:
        x: the rows to predict from.
        targets: what to predict, one or more for the same rows.
        folds: the fold of each row; see :func:`random_folds`.

    Returns:
        Of each target; NaN where it does not vary.
    """
    y = targets.double()
    left = y.new_zeros(2, len(y))
    for fold in folds.unique():
        test = folds == fold
        ridge = Ridge(x[~test])
        for number, own in enumerate(y):
            fitted = ridge.fit(own[~test])
            found = own[test]
            left[0, number] += (found - fitted(x[test].double())).square().sum()
            left[1, number] += (found - own[~test].mean(0)).square().sum()
    return 1 - left[0] / left[1].where(left[1] > 0, torch.nan)


def random_folds(n: int, folds: int, generator: torch.Generator) -> Int[Tensor, " row"]:
    """A fold of each of ``n`` rows, at random and as equal in size as can be."""
    return (torch.arange(n) % folds)[torch.randperm(n, generator=generator)]
