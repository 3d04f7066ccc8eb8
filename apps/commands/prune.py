"""``interp prune``: how small a circuit does what the model does?"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import (
    AttributionName,
    Kind,
    KindName,
    PairMetric,
    PairMetricName,
    Seed,
    analysis_command,
)

if TYPE_CHECKING:
    from analyses import Pruning
    from apps.commands.inputs import Inputs


class RankName(StrEnum):
    """How edges are ranked."""

    SIZE = "size"
    SIGNED = "signed"


Scores = Annotated[
    AttributionName, typer.Option(help="How edges are scored; exact patches every edge.")
]
Rank = Annotated[
    RankName, typer.Option(help="Rank edges by |score|, or by how much of the metric they carry.")
]


@analysis_command("Running circuits", reads=("text", "corrupt"))
def prune(
    inputs: "Inputs",
    *,
    scores: Scores = AttributionName.CONDUCTANCE,
    rank: Rank = RankName.SIZE,
    kind: Kind = KindName.RESAMPLE,
    metric: PairMetric = PairMetricName.LOGIT_DIFF,
    seed: Seed = 0,
) -> "Pruning":
    """Rank all edges, and run circuits of the highest-ranked alone."""
    from analyses import attribute_edges  # noqa: PLC0415
    from analyses import prune as prune_edges  # noqa: PLC0415

    pairs, measured, progress = inputs.pairs, inputs.token_metric(metric), inputs.progress
    edges = attribute_edges(
        inputs.model,
        *pairs,
        metric=measured,
        method=scores.value,
        check=0,
        seed=seed,
        progress=progress,
    )
    return prune_edges(
        edges.scores,
        inputs.model,
        *pairs,
        metric=measured,
        rank=rank.value,
        kind=kind.value,
        seed=seed,
        progress=progress,
    )
