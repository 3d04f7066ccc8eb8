"""``interp attribute``: which edges carry the difference between two prompts, from gradients?"""

from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command
from apps.commands.options import AttributionName, PairMetric, PairMetricName

if TYPE_CHECKING:
    from analyses import EdgeAttribution
    from apps.commands.inputs import Inputs


Method = Annotated[AttributionName, typer.Option(help="How effects are estimated.")]
Steps = Annotated[
    int, typer.Option(help="Steps on the path from clean to corrupted embeddings.", min=1)
]
Check = Annotated[int, typer.Option(help="Number of edges to patch exactly, as a check.", min=1)]


@analysis_command("Checking against exact patching", reads=("text", "corrupt"), is_resumable=True)
def attribute(
    inputs: "Inputs",
    *,
    method: Method = AttributionName.CONDUCTANCE,
    metric: PairMetric = PairMetricName.LOGIT_DIFF,
    steps: Steps = 10,
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
        check=check,
        **inputs.how_resumable(attribute_edges),
    )
