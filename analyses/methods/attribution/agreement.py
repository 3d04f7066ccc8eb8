"""Do cheap estimates of effects agree with exact ones?

They are compared on cells that were also measured exactly: half of these have the largest
estimates, the others are drawn from the rest, one from each of equally large strata of ranks. An
effect that the estimates missed may thus be found, but correlations are not those over all cells:
they rise with the share of large effects among the cells compared.
"""

from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.results import Cells, effect_frame, fixed, percent

TOP = 20
"""Number of largest cells whose overlap is counted."""
LEAST = 0.9
"""Correlation below which estimates should not be relied on."""


@dataclass(frozen=True)
class Agreement:
    """How estimates compare with exact effects; NaN where a number is not defined.

    Attributes:
        pearson: correlation.
        spearman: correlation of the ranks.
        overlap: share of the ``TOP`` largest exact effects (those that are not 0) that are among
            the ``TOP`` largest estimates; NaN with no more cells than that.
        n: number of cells compared.
    """

    pearson: float
    spearman: float
    overlap: float
    n: int

    @classmethod
    def of(cls, estimates: Float[Tensor, " cell"], exact: Float[Tensor, " cell"]) -> "Agreement":
        """Compare the two; cells that are NaN in either are left out."""
        both = torch.stack([estimates, exact]).cpu().double()
        both = both[:, ~both.isnan().any(0)]
        ranks = torch.stack([_ranks(effects) for effects in both])
        return cls(_correlation(both), _correlation(ranks), _overlap(both.abs()), both.shape[1])

    @property
    def is_good(self) -> bool:
        """Whether the estimates correlate with the exact effects; True if there are none."""
        return self.n == 0 or self.pearson >= LEAST

    def warnings(self, cell: str) -> list[str]:
        """Lines of a summary that warn if the scores of each ``cell`` are not reliable."""
        if self.is_good:
            return []
        return [
            f"WARNING: the scores correlate with exact patching below {LEAST}: "
            f'method="exact" patches every {cell}'
        ]

    def __str__(self) -> str:
        """The correlations and the overlap, in one line."""
        shared = (
            "" if self.overlap != self.overlap else f", top-{TOP} overlap {percent(self.overlap)}"
        )
        return f"r = {fixed(self.pearson, 3)}, rank r = {fixed(self.spearman, 3)}{shared}"


def cells_to_check(sizes: Float[Tensor, " cell"], n: int, seed: int = 0) -> Int[Tensor, " checked"]:
    """Select ``n`` cells to measure exactly: half the largest, the rest one per stratum.

    Args:
        sizes: absolute values of the estimates.
        n: number of cells; all are selected if there are no more.
        seed: seed for the draws.
    """
    order = sizes.cpu().argsort(descending=True, stable=True)
    if n >= len(order):
        return order
    largest, rest = order[: n // 2], order[n // 2 :]
    strata = rest.tensor_split(n - n // 2) if n else ()
    generator = torch.Generator().manual_seed(seed)
    drawn = [stratum[torch.randint(len(stratum), (1,), generator=generator)] for stratum in strata]
    return torch.cat([largest, *drawn])


def checked_frame(
    cells: Cells,
    effect: Float[Tensor, "cell prompt"],
    noise: float,
    checked: Int[Tensor, " checked"],
    exact: Float[Tensor, "checked prompt"],
    metric: Float[Tensor, " prompt"],
) -> pd.DataFrame:
    """:func:`analyses.results.effect_frame` of estimates, with the mean exact effect beside them.

    Args:
        cells: the columns that name the cells.
        effect: the estimate of each cell on each prompt.
        noise: means within ±noise count as zero in p-values.
        checked: indices of the cells that were measured exactly.
        exact: their exact effects, whose means are the last column, ``exact``; NaN elsewhere.
        metric: the metric without a change.
    """
    column = torch.full((len(effect),), torch.nan, dtype=torch.float64)
    column[checked] = exact.double().mean(-1)
    frame = effect_frame({**cells, "exact": column.tolist()}, effect, noise, metric=metric)
    frame["exact"] = frame.pop("exact")
    return frame


def _ranks(x: Float[Tensor, " cell"]) -> Float[Tensor, " cell"]:
    """Ranks from 0; equal values share their mean rank."""
    _, group, counts = x.unique(return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    return (last - (counts + 1) / 2)[group]


def _correlation(both: Float[Tensor, "two cell"]) -> float:
    if both.shape[1] < 2:  # noqa: PLR2004 - of a single point
        return torch.nan
    x, y = both - both.mean(-1, keepdim=True)
    norm = x.norm() * y.norm()
    return float((x @ y) / norm) if norm > 0 else torch.nan


def _overlap(sizes: Float[Tensor, "two cell"]) -> float:
    """The share of the largest nonzero exact effects that are among the largest estimates."""
    if sizes.shape[1] <= TOP:
        return torch.nan
    estimated, exact = (
        {n for n in size.topk(TOP).indices.tolist() if size[n] > 0} for size in sizes
    )
    return len(estimated & exact) / len(exact) if exact else torch.nan
