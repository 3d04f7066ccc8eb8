"""``interp prune``: how small is a circuit that does what the model does?"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command
from apps.commands.options import AttributionName, PairMetric, PairMetricName, Patch, PatchName

if TYPE_CHECKING:
    from analyses import Pruning
    from apps.commands.inputs import Inputs


class RankName(StrEnum):
    """How edges are ranked."""

    SIZE = "size"
    SIGNED = "signed"


Scores = Annotated[
    AttributionName,
    typer.Option(help="How edges are scored; exact patches every edge, which is slow."),
]
Rank = Annotated[
    RankName,
    typer.Option(help="size: rank edges by |score|; signed: by the part of the metric they carry."),
]
HeldOut = Annotated[
    str | None,
    typer.Option(
        "--heldout",
        help="Pairs to run circuits on: a file, a bundled set, or a share of the prompts such as "
        "0.5, which is then not used for scoring.",
        show_default="the pairs that edges are scored on",
    ),
]


@analysis_command("Running circuits", reads=("text", "corrupt"))
def prune(
    inputs: "Inputs",
    *,
    scores: Scores = AttributionName.CONDUCTANCE,
    rank: Rank = RankName.SIZE,
    method: Patch = PatchName.RESAMPLE,
    metric: PairMetric = PairMetricName.LOGIT_DIFF,
    heldout: HeldOut = None,
) -> "Pruning":
    """Rank all edges, and run circuits that consist of the highest-ranked ones alone."""
    from analyses import attribute_edges  # noqa: PLC0415
    from analyses import prune as prune_edges  # noqa: PLC0415
    from analyses.methods.attribution import TOLERANCE  # noqa: PLC0415

    scored, held = _divided(inputs, heldout)
    pairs, measured = scored.pairs, scored.token_metric(metric)
    edges = attribute_edges(
        inputs.model,
        *pairs,
        metric=measured,
        method=scores.value,
        tolerance=TOLERANCE,
        check=0,
        **inputs.how(attribute_edges),
    )
    return prune_edges(
        edges.scores,
        inputs.model,
        *pairs,
        metric=measured,
        rank=rank.value,
        method=method.value,
        heldout=None if held is None else (*held.pairs, held.token_metric(metric)),
        **inputs.how(prune_edges),
    )


def _divided(inputs: "Inputs", heldout: str | None) -> tuple["Inputs", "Inputs | None"]:
    """The prompts that edges are scored on, and those that circuits are run on if they differ."""
    if heldout is None:
        return inputs, None
    try:
        share = float(heldout)
    except ValueError:
        return inputs, inputs.of_file(heldout)
    if not 0 < share < 1:
        from interp.errors import InvalidInput  # noqa: PLC0415

        raise InvalidInput(
            f"--heldout {heldout} should be a share between 0 and 1, a file or a bundled set."
        )
    return inputs.divided(share)
