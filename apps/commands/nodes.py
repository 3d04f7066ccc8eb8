"""``interp nodes``: which nodes carry the difference between two prompts, from gradients?"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command
from apps.commands.options import PairMetric, PairMetricName

if TYPE_CHECKING:
    from analyses import NodeAttribution
    from apps.commands.inputs import Inputs


class EstimateName(StrEnum):
    """How effects of nodes are estimated."""

    ATP = "atp"
    ATP_STAR = "atp-star"
    EXACT = "exact"


Method = Annotated[EstimateName, typer.Option(help="How effects are estimated.")]
Positions = Annotated[
    bool,
    typer.Option("--positions", help="Estimate each position separately; only with --method atp."),
]
Check = Annotated[int, typer.Option(help="Number of nodes to patch exactly, as a check.", min=1)]


@analysis_command("Checking against exact patching", reads=("text", "corrupt"), is_resumable=True)
def nodes(
    inputs: "Inputs",
    *,
    method: Method = EstimateName.ATP_STAR,
    metric: PairMetric = PairMetricName.LOGIT_DIFF,
    positions: Positions = False,
    check: Check = 64,
) -> "NodeAttribution":
    """Estimate the effects of all heads' q, k, v and z and of all MLPs, and check some."""
    from analyses import attribute_nodes  # noqa: PLC0415

    return attribute_nodes(
        inputs.model,
        *inputs.pairs,
        metric=inputs.token_metric(metric),
        method=method.replace("-star", "*"),
        positions=positions,
        check=check,
        **inputs.how_resumable(attribute_nodes),
    )
