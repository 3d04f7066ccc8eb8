"""``interp attribute``: which edges carry the difference between two prompts, from gradients?"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.commands.command import analysis_command
from apps.commands.options import AttributionName, PairMetric, PairMetricName

if TYPE_CHECKING:
    from analyses import EdgeAttribution
    from apps.commands.inputs import Inputs


Method = Annotated[AttributionName, typer.Option(help="How effects are estimated.")]
Steps = Annotated[
    int | None,
    typer.Option(
        help="Steps on the path from clean to corrupted embeddings; each pair costs one more "
        "forward and backward passes. eap takes 2 passes whatever the steps.",
        min=1,
        show_default="10",
    ),
]
Tolerance = Annotated[
    float | None,
    typer.Option(
        help="Halve steps until sums are off by at most this share of the metric's range, e.g. "
        "0.01; up to ten times as many.",
        show_default="exactly --steps; 0.01 for conductance without --steps",
    ),
]
Check = Annotated[int, typer.Option(help="Number of edges to patch exactly, as a check.", min=1)]


def _cost(options: Mapping[str, Any]) -> str:
    """What is computed, with its cost."""
    method, check = AttributionName(options["method"]), options["check"]
    if method is AttributionName.EXACT:
        return "Patching every edge"
    from analyses.methods.attribution import most_points, steps_and_tolerance  # noqa: PLC0415 - imports torch

    given = options["steps"], options["tolerance"]
    steps, tolerance = steps_and_tolerance(method.value, *given)
    points = most_points(method.value, steps, tolerance)
    passes = f"{'' if tolerance is None else 'up to '}{points} forward and backward passes a pair"
    return f"Scoring edges: {passes}; then patching {check} exactly"


@analysis_command(_cost, reads=("text", "corrupt"), is_resumable=True)
def attribute(
    inputs: "Inputs",
    *,
    method: Method = AttributionName.CONDUCTANCE,
    metric: PairMetric = PairMetricName.LOGIT_DIFF,
    steps: Steps = None,
    tolerance: Tolerance = None,
    check: Check = 64,
) -> "EdgeAttribution":
    """Estimate the effects of all edges at once from gradients, and check some by patching."""
    from analyses import attribute_edges  # noqa: PLC0415

    return attribute_edges(
        inputs.model,
        *inputs.pairs,
        metric=inputs.token_metric(metric),
        method=method.value,
        steps=steps,
        tolerance=tolerance,
        check=check,
        **inputs.how_resumable(attribute_edges),
    )
