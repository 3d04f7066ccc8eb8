"""Positions that are added to the embedding: their shifts, spectrum and similarity.

The schemes of attention are in :mod:`analyses.positions.position_schemes`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from analyses.methods.fourier import joint_shares
from analyses.positions.position_schemes import Rows, Scheme
from analyses.positions.shift import fit_shifts, shift_eigenvalues
from analyses.results import Curve, fixed, number, percent
from interp.model import PositionEmbedding, SinusoidalPositions

OFFSETS = (1, 2, 4, 8, 16)
"""Shifts that a map is fitted to."""
DRAWS = 5
"""Permutations of the control."""
LEAST = 0.5
"""R² from which a shift is called linear."""


@dataclass(frozen=True, eq=False)
class TableScheme(Scheme):
    """Positions that are added to the embedding: learned, or sines and cosines.

    Attributes:
        offsets: shifts that a map was fitted to; none where there are too few positions, or where
            all positions are alike.
        r2: R² on positions held out.
        control: the same for permuted rows, in each draw.
        unchanged: R² of p_k as a prediction of p_{k+n}.
        spectrum: share of the variance over positions at frequency 1, 2, … (periods over all of
            them).
        spectrum_control: the same for permuted positions, mean over the draws.
        similarity: cosine of every two positions; NaN for a position whose vector is zero.
        moduli: moduli of the eigenvalues of the shift by 1: of the fitted map, if there are
            offsets, or of the rotation.
        angles: angles of these eigenvalues, in radians.
    """

    offsets: tuple[int, ...]
    r2: Float[Tensor, " offset"]
    control: Float[Tensor, "offset draw"]
    unchanged: Float[Tensor, " offset"]
    spectrum: Float[Tensor, " frequency"]
    spectrum_control: Float[Tensor, " frequency"]
    similarity: Float[Tensor, "pos pos"]
    moduli: Float[Tensor, " eigenvalue"]
    angles: Float[Tensor, " eigenvalue"]

    def rows(self) -> Rows:
        """R² and its controls, and the mean cosine of positions at that distance."""
        for row, n in enumerate(self.offsets):
            yield "R²", "table", n, self.r2[row].item()
            yield "R², permuted", "table", n, self.control[row].mean().item()
            yield "R², unchanged", "table", n, self.unchanged[row].item()
        for n, cosine in enumerate(self._cosines):
            yield "cosine", "table", n, cosine

    def curves(self) -> list[Curve]:
        """R², R² for permuted rows, and the cosine."""
        return [
            Curve(f"R², {self.where}", self.offsets, self.r2.tolist()),
            Curve(f"cosine, {self.where}", range(len(self._cosines)), self._cosines),
            Curve("R², permuted", self.offsets, self.control.mean(-1).tolist(), faint=True),
        ]

    def lines(self) -> list[str]:
        """R² of the first offset, its controls, and the frequency with most of the variance."""
        if not bool(self.spectrum.isfinite().all()):
            return ["all positions are alike"]
        top = int(self.spectrum.argmax())
        periods = (
            f"most variance at frequency {top + 1}: {percent(self.spectrum[top], 1)} "
            f"(permuted: {percent(self.spectrum_control[top], 1)})"
        )
        if not self.offsets:
            return [f"{len(self.similarity)} positions, too few to fit a shift", periods]
        return [self._shift_line(), *self._eigenvalue_lines(), periods]

    @property
    def unit(self) -> str:
        """The unit of the curves."""
        return "R², cosine"

    @property
    def _cosines(self) -> list[float]:
        """The mean over all positions at each distance."""
        return [self.similarity.diagonal(n).nanmean().item() for n in range(len(self.similarity))]

    def _shift_line(self) -> str:
        verdict = "a linear map" if self.r2[0] > LEAST else "no linear map"
        return (
            f"the shift by {self.offsets[0]} is {verdict}: R² {fixed(self.r2[0], 2)} held out "
            f"(permuted {fixed(self.control[0].mean(), 2)}, unchanged "
            f"{fixed(self.unchanged[0], 2)})"
        )

    def _eigenvalue_lines(self) -> list[str]:
        if self.r2[0] <= LEAST:
            return []
        large = self.moduli[self.moduli > LEAST]
        return [
            f"{len(large)} eigenvalues of the fitted map are over {LEAST}, the largest "
            f"{fixed(large.max(), 3)}"
        ]


@dataclass(frozen=True, eq=False)
class SinusoidalScheme(TableScheme):
    """Sines and cosines, whose shifts are rotations.

    Attributes:
        errors: max |p_{k+n} − p_k R(n)| over all k, for each offset, in the model's own table.
    """

    errors: Float[Tensor, " offset"]

    def rows(self) -> Rows:
        """The numbers of a table, and the error of the rotation."""
        yield from super().rows()
        for n, error in zip(self.offsets, self.errors.tolist(), strict=True):
            yield "error of the rotation", "table", n, error

    def _shift_line(self) -> str:
        return f"a shift is a rotation, to {number(self.errors.max(), 1)}; {super()._shift_line()}"

    def _eigenvalue_lines(self) -> list[str]:
        return [
            f"{len(self.moduli)} eigenvalues of the rotation by 1 are on the unit circle, to "
            f"{number((self.moduli - 1).abs().max(), 1)}"
        ]


def scheme_of_embedding(entry: PositionEmbedding, where: str, n: int, seed: int) -> TableScheme:
    """The scheme of the first ``n`` positions that are added to the embedding."""
    table = entry.table()[:n].detach().cpu().double()
    if not isinstance(entry, SinusoidalPositions):
        return TableScheme("learned", **_of_table(table, shift_eigenvalues(table), where, seed))
    attributes = _of_table(table, torch.linalg.eigvals(entry.shift(1)), where, seed)
    errors = [(table[k:] - table[:-k] @ entry.shift(k)).abs().max() for k in attributes["offsets"]]
    return SinusoidalScheme("sinusoidal", **attributes, errors=torch.tensor(errors).double())


def _of_table(
    table: Float[Tensor, "pos d_model"],
    eigenvalues: Complex[Tensor, " eigenvalue"],
    where: str,
    seed: int,
) -> dict[str, Any]:
    """The fields of any table."""
    varies = bool((table != table[0]).any())
    fit = fit_shifts(table, OFFSETS if varies else (), draws=DRAWS, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    permuted = [
        joint_shares(table[torch.randperm(len(table), generator=generator)]) for _ in range(DRAWS)
    ]
    unit = table / table.norm(dim=-1, keepdim=True)
    return {
        "where": where,
        "offsets": fit.offsets,
        "r2": fit.r2,
        "control": fit.control,
        "unchanged": fit.unchanged,
        "spectrum": joint_shares(table),
        "spectrum_control": torch.stack(permuted).mean(0),
        "similarity": unit @ unit.mT,
        "moduli": eigenvalues.abs(),
        "angles": eigenvalues.angle(),
    }
