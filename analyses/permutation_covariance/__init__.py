"""Which orders and bases does a model's function not depend on? Exact symmetries, with converses.

    tokens       h(Px) = P h(x),  A(Px) = P A(x) Pᵀ     P any permutation; no mask, no positions
    heads        Σ_h A_h x S_h                          heads of a layer in another order
    neurons      Σ_n act(x w_n) u_n                     neurons of an MLP, or of each expert
    batch        f(x_π) = f(x)_π                        prompts in another order
    vocabulary   f(π ids) = f(ids)_π                    rows of W_E and columns of W_U reordered
    scores       W_Q G (W_K G⁻ᵀ)ᵀ = W_Q W_Kᵀ            G invertible, commuting with the positions
    values       W_V B B⁻¹ W_O = W_V W_O                B invertible

(Lee et al. 2019, "Set Transformer", for tokens; Elhage et al. 2021 for bases.) All are identities:
in float64 they hold within rounding at every head and layer and at the output (1e-12; for patterns
under another basis, times the largest score if that is above 1). Each has a converse: the same
comparison after a change that must break it, such as the causal mask or a change of one factor
alone. A converse that breaks nothing shows that the model does not use what was changed, as a head
that counts does not use positions.

Tokens are random, so the size of what a converse breaks says little about text; see
:func:`analyses.order_sensitivity` for that.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import torch

from analyses.methods.finite import check_finite_weights
from analyses.methods.symmetries import HEAD
from analyses.permutation_covariance.check import SymmetryCheck
from analyses.permutation_covariance.checks import check_symmetries
from analyses.results import Drawing, Heatmap, Result
from interp import Transformer
from interp.execution import Provenance
from interp.integers import as_seed

DIGITS = 16.0
"""Digits of a float64; the end of the figure's scale."""


@dataclass(frozen=True, eq=False, repr=False)
class PermutationCovariance(Result):
    """Symmetries of a model, each with its error, bound and converse.

    Attributes:
        checks: checks of every symmetry at every part.
        provenance: model, tokens and seed that the numbers depend on.
        notes: symmetries that were not checked for this model, and why.
    """

    checks: tuple[SymmetryCheck, ...]
    provenance: Provenance
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every identity holds."""
        return all(check.holds for check in self.checks if not check.change)

    def to_frame(self) -> pd.DataFrame:
        """One row per check.

        Columns:
            symmetry, identity: name and equation of the symmetry.
            change: what should break it; ``none`` for the identity itself.
            kind, name, quantity: the part, and what was compared.
            error: largest difference, relative to the largest number if that is above 1.
            bound: the largest error allowed.
            holds: whether the error is within the bound.
            verdict: ``holds`` or ``BROKEN``; for a converse, ``breaks`` or ``no effect``.
        """
        rows = [
            {
                "symmetry": check.symmetry,
                "identity": check.name,
                "change": check.change or "none",
                "kind": check.kind,
                "name": check.part,
                "quantity": check.quantity,
                "error": check.error,
                "bound": check.bound,
                "holds": check.holds,
                "verdict": check.verdict,
            }
            for check in self.checks
        ]
        return pd.DataFrame(rows)

    def drawing(self) -> Drawing:
        """Heatmap of the digits that agree: symmetries and what breaks them down, parts across."""
        worst: dict[tuple[str, str], float] = {}
        for check in self.checks:
            cell = _row(check), _column(check)
            worst[cell] = max(worst.get(cell, 0.0), check.error)
        rows, columns = (list(dict.fromkeys(cell[axis] for cell in worst)) for axis in (0, 1))
        errors = torch.tensor(
            [[worst.get((row, column), torch.nan) for column in columns] for row in rows],
            dtype=torch.float64,
        )
        return Heatmap(
            -errors.clamp(min=10**-DIGITS, max=1.0).log10(),
            title="Symmetries of the model: digits that agree at the worst part",
            rows=rows,
            columns=columns,
            axes=("symmetry, or what breaks it", "part"),
            unit="digits",
            top=DIGITS,
        )

    def summary(self) -> str:
        """Whether all hold and all changes break them; and the largest errors of each symmetry.

        Errors within their bounds are rounding errors, which differ between processors, and are
        not printed; ``to_frame`` has them.
        """
        lines = [line for name in self._symmetries for line in self._lines(name)]
        broken = [check for check in self._identities if not check.holds]
        failed = [f"BROKEN: {check.part} {check.name} {check.error:.1e}" for check in broken[:5]]
        return "\n".join([self.headline(), *failed, *lines, *self.notes])

    def headline(self) -> str:
        """See :meth:`Result.headline`."""
        identities = self._identities
        broken = sum(not check.holds for check in identities)
        outcome = f"{broken} of {len(identities)} checks FAIL" if broken else "all hold"
        idle = self._without_effect()
        ending = f"no effect: {', '.join(idle)}" if idle else "each change breaks its identity"
        return f"{len(self._symmetries)} symmetries, {len(identities)} checks: {outcome}; {ending}"

    @property
    def _symmetries(self) -> list[str]:
        return list(dict.fromkeys(check.symmetry for check in self.checks))

    @property
    def _identities(self) -> list[SymmetryCheck]:
        return [check for check in self.checks if not check.change]

    def _without_effect(self) -> list[str]:
        """The changes that break nothing, at any part."""
        broken = {_row(check) for check in self.checks if check.change and not check.holds}
        every = dict.fromkeys(_row(check) for check in self.checks if check.change)
        return [row.replace(":", "") for row in every if row not in broken]

    def _lines(self, symmetry: str) -> Iterator[str]:
        checks = [check for check in self.checks if check.symmetry == symmetry]
        for change in dict.fromkeys(check.change for check in checks):
            some = [check for check in checks if check.change == change]
            worst = max(check.error for check in some)
            n_holding = sum(check.holds for check in some)
            error = "≤ bound" if n_holding == len(some) else f"{worst:.1e}"
            label = f"  {change}" if change else symmetry
            yield f"{label:<28} {error:>8}  holds at {n_holding} of {len(some)}"


def _row(check: SymmetryCheck) -> str:
    return f"{check.symmetry}: {check.change}" if check.change else check.symmetry


def _column(check: SymmetryCheck) -> str:
    return f"{check.kind} {check.quantity}" if check.kind == HEAD else check.kind


def permutation_covariance(model: Transformer, *, seed: int = 0) -> PermutationCovariance:
    """Check the exact symmetries of a model on random tokens, in float64.

    Symmetries that a model does not have are left out and named in ``notes``: the order of single
    heads, of neurons without an MLP, of the vocabulary of an image model, the basis of normalized
    queries and keys. Where position biases belong to heads by their index (ALiBi, T5), heads are
    reordered without positions.

    Args:
        model: any model; it is copied to float64 and not changed.
        seed: seed for tokens, permutations and bases.

    Returns:
        A check for every symmetry, part and change.

    Raises:
        InvalidInput: ``model`` is not a model, or its weights are parametrized.

    Examples:
        >>> analyses.permutation_covariance(interp.load("rasp-histogram"))
        PermutationCovariance(7 symmetries, 35 checks: all hold; no effect: tokens with positions)
    """
    check_finite_weights(model)
    seed = as_seed(seed)
    checked = check_symmetries(model, seed)
    provenance = Provenance.of(model, *checked.batches, seed=seed)
    return PermutationCovariance(checked.checks, provenance, checked.notes)
