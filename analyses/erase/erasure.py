"""Erasure of z from x: exact (LEACE), or only of the directions that one linear probe reads.

    r(x) = x − Σ^{1/2} P Σ^{−1/2} (x − μ)        P: onto the columns of Σ^{−1/2} Cov(x, z)

Σ is the covariance of x. Of all affine maps whose result has zero covariance with z, r has the
least mean ‖r(x) − x‖² (Belrose et al. 2023, "LEACE: Perfect linear concept erasure in closed
form", theorem 4.3). If z holds the indicators of classes, no linear probe of r(x) does better on
these rows than a constant, for any convex loss. Nonlinear probes may still predict z, and so may
linear ones on other rows.

    r(x) = x − Q Qᵀ (x − μ)                        Q: an orthonormal basis of a probe's weights

After the directions of one probe are removed, another probe may still predict z from directions
that correlate with them (Ravfogel et al. 2020, "Null It Out", fit and remove probes repeatedly).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.methods.ridge import Ridge

ROUNDING = 1e-9
"""Singular values below this share of the largest are rounding errors."""


@dataclass(frozen=True, eq=False)
class Erasure:
    """x ↦ x − (x − μ) left right.

    Attributes:
        mean: μ.
        left: maps a centred row to the coefficients of the removed directions.
        right: the removed directions.
    """

    mean: Float[Tensor, " dim"]
    left: Float[Tensor, "dim rank"]
    right: Float[Tensor, "rank dim"]

    @classmethod
    def of(
        cls,
        x: Float[Tensor, "row dim"],
        z: Float[Tensor, "row concept"],
        rounding: float = ROUNDING,
    ) -> "Erasure":
        """The erasure of z from x, fitted to these rows in float64.

        With x̃ = U s Vᵀ, Σ^{−1/2} Cov(x, z) is V Uᵀz̃ up to a factor, so P depends only on the
        range of Uᵀz̃.

        Args:
            x: the rows.
            z: the concept to erase, one row per row of x.
            rounding: directions of x whose singular value is below this share of the largest are
                ignored; in float32 activations, such directions hold only rounding errors.
        """
        rows, labels = x.double(), z.double()
        mean = rows.mean(0)
        left, size, right = torch.linalg.svd(rows - mean, full_matrices=False)
        above_rounding = size > rounding * size.max()
        left, size, right = left[:, above_rounding], size[above_rounding], right[above_rounding]
        centred = labels - labels.mean(0)
        read, singular_values, _ = torch.linalg.svd(left.mT @ centred, full_matrices=False)
        basis = read[:, singular_values > ROUNDING * centred.norm()]
        return cls(mean, right.mT @ (basis / size[:, None]), (basis.mT * size) @ right)

    @classmethod
    def of_probe(
        cls,
        x: Float[Tensor, "row dim"],
        z: Float[Tensor, "row concept"],
        rounding: float = ROUNDING,
    ) -> "Erasure":
        """The erasure of the directions that a ridge probe of z, fitted to these rows, reads.

        Args:
            x: the rows.
            z: the targets of the probe, one row per row of x.
            rounding: directions of the probe's weights whose singular value is below this share of
                the largest are ignored.
        """
        weights = Ridge(x).fit(z).W
        read, size, _ = torch.linalg.svd(weights, full_matrices=False)
        basis = read[:, size > rounding * size.max()]
        return cls(x.double().mean(0), basis, basis.mT)

    def __call__(self, x: Float[Tensor, "row dim"]) -> Float[Tensor, "row dim"]:
        """The rows without z, in float64."""
        return x.double() - (x.double() - self.mean) @ self.left @ self.right


ERASURES: Mapping[str, Callable[[Tensor, Tensor, float], Erasure]] = {
    "leace": Erasure.of,
    "probe": Erasure.of_probe,
}
"""The fit of each kind of erasure, by name."""
