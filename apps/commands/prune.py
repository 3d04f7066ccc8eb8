"""``interp prune``: how small a circuit does what the model does?"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import PairMetric, PairMetricName, analysis_command
from apps.commands.paths import Kind, KindName

if TYPE_CHECKING:
    from analyses import Pruning
    from apps.commands.inputs import Inputs


class RankName(StrEnum):
    """How edges are ranked."""

    SIZE = "size"
    SIGNED = "signed"


Rank = Annotated[
    RankName, typer.Option(help="Rank edges by |score|, or by how much of the metric they carry.")
]
Seed = Annotated[int, typer.Option(help="Random seed of the control's orders.")]


@analysis_command("Patching edges, then running circuits", reads=("text", "corrupt"))
def prune(
    inputs: "Inputs",
    *,
    rank: Rank = RankName.SIZE,
    kind: Kind = KindName.RESAMPLE,
    metric: PairMetric = PairMetricName.LOGIT_DIFF,
    seed: Seed = 0,
) -> "Pruning":
    """Rank all edges by exact patching, and run circuits of the highest-ranked alone."""
    import analyses  # noqa: PLC0415

    clean, corrupt = inputs.pairs
    measured, progress = inputs.token_metric(metric), inputs.progress
    edges = analyses.patch_paths(
        inputs.model, clean, corrupt, kind=kind.value, metric=measured, progress=progress
    )
    return analyses.prune(
        edges.scores,
        inputs.model,
        clean,
        corrupt,
        metric=measured,
        rank=rank.value,
        kind=kind.value,
        seed=seed,
        progress=progress,
    )
