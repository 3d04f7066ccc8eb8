"""Do the effects that a graph predicts happen? Units are set to zero, one at a time.

    predicted: Σ over the graph's paths        measured: answer − answer without the unit

The answer is Σ p·logit over the logits of the graph. A graph is exact only for a model whose
patterns, divisors and gates do not move; so each unit is removed twice, from the model as it is,
and with all patterns kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.attribution_graph.nodes import GraphNode, Placed
from analyses.methods.attribution import cells_to_check
from analyses.results import fixed, percent
from interp import Transformer, edits, sweep
from interp.edits import Edit, Hook
from interp.io import ProgressLike
from interp.model import Attention, Batch
from interp.points import Place

FACTOR = 2.0
"""A prediction is near if it is between the measured effect / FACTOR and the effect · FACTOR."""
LEAST_NEAR = 0.5
"""The share of near predictions below which a graph is said to fail."""
LEAST_R = 0.5
"""The correlation below which a graph is said to fail."""


@dataclass(frozen=True)
class Predicted:
    """How predicted effects compare with measured ones; NaN where a number is not defined.

    Attributes:
        slope: of measured effects by predicted ones, through 0, by least squares.
        r: their correlation.
        near: the share of predictions within a factor of two, with the same sign.
        n: number of units.
    """

    slope: float
    r: float
    near: float
    n: int

    @classmethod
    def of(cls, effect: Float[Tensor, " unit"], exact: Float[Tensor, " unit"]) -> "Predicted":
        """Compare the two; units that were not measured are left out."""
        measured = ~exact.isnan()
        x, y = effect[measured].double(), exact[measured].double()
        n = len(x)
        squares = float((x * x).sum())
        slope = float((x * y).sum()) / squares if squares > 0 else torch.nan
        ratio = y / x
        near = ((ratio >= 1 / FACTOR) & (ratio <= FACTOR)) | ((x == 0) & (y == 0))
        r = float(torch.corrcoef(torch.stack([x, y]))[0, 1]) if n > 1 else torch.nan
        return cls(slope, r, float(near.double().mean()) if n else torch.nan, n)

    @property
    def fails(self) -> bool:
        """Whether most predictions are wrong; False if none was measured."""
        return self.n > 0 and (self.near < LEAST_NEAR or self.r < LEAST_R)

    def __str__(self) -> str:
        """The numbers, in a line."""
        return (
            f"slope {fixed(self.slope, 2)}, r {fixed(self.r, 2)}, "
            f"{percent(self.near)} within a factor of two"
        )


@dataclass(frozen=True, eq=False)
class Measurement:
    """How units are measured.

    Attributes:
        check: number of units: half of them those with the most influence, the rest drawn.
        seed: seed for the draws.
        memory: bytes that forwards may take.
        progress: see :func:`interp.sweep`.
        cancelled: likewise.
    """

    check: int
    seed: int
    memory: float | None
    progress: ProgressLike
    cancelled: Callable[[], bool] | None


def measured(
    model: Transformer,
    batch: Batch,
    column: int,
    placed: Placed,
    nodes: dict[int, GraphNode],
    how: Measurement,
) -> dict[int, GraphNode]:
    """The nodes, with what the answer loses without some of the units."""
    ends = placed.ends
    units = [number for number in nodes if bool(ends.is_unit[number])]
    sizes = torch.tensor([nodes[number].influence for number in units])
    chosen = [units[cell] for cell in cells_to_check(sizes, how.check, how.seed).tolist()]
    if not chosen:
        return nodes
    zeros = [_zero(placed, number) for number in chosen]
    patterns = _patterns(placed)
    answer = partial(answer_of, ids=placed.ids, weights=placed.start, column=column)
    table = sweep(
        model,
        batch,
        [*zeros, *([*zero, *patterns] for zero in zeros)],
        answer,
        memory=how.memory,
        progress=how.progress,
        cancelled=how.cancelled,
    )
    losses = -table.effect[:, 0].double()
    exact, frozen = losses.view(2, -1).tolist()
    changed = {
        number: replace(nodes[number], exact=exact[n], exact_frozen=frozen[n])
        for n, number in enumerate(chosen)
    }
    return nodes | changed


def answer_of(
    logits: Float[Tensor, "row pos vocab"],
    *,
    ids: Int[Tensor, " logit"],
    weights: Float[Tensor, " logit"],
    column: int,
) -> Float[Tensor, " row"]:
    """Σ p·(logit − mean logit) at one column."""
    read = logits[:, column].double()
    centred = read[:, ids.to(read.device)] - read.mean(-1, keepdim=True)
    return centred @ weights.to(read)


def _zero(placed: Placed, number: int) -> list[Edit]:
    branch, at = placed.unit(number)
    return placed.rows.units[branch].zero(at)


def _patterns(placed: Placed) -> Sequence[Edit]:
    """Edits that keep all patterns as they were; large ones are derived where they are read."""
    frozen = placed.rows.frozen
    places = [
        Place(branch.step.f.points.pattern, branch.layer)
        for branch in frozen.branches
        if isinstance(branch.step.f, Attention)
    ]
    if frozen.keeps_patterns:
        return [edits.patch(frozen.cache, place) for place in places]

    def as_in_the_run(pattern: Tensor, hook: Hook) -> None:
        pattern.copy_(frozen.cache[hook.place])

    return [edits.apply(place, as_in_the_run) for place in places]
