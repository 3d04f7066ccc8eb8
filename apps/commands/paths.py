"""``interp paths``: which edges carry the difference between two prompts?"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command
from apps.commands.options import MetricName, Patch, PatchName

if TYPE_CHECKING:
    from analyses import PathPatching
    from apps.commands.inputs import Inputs


class ModeName(StrEnum):
    """What is recomputed downstream of a patched edge."""

    EDGE = "edge"
    FROZEN_HEADS = "frozen-heads"


Mode = Annotated[
    ModeName,
    typer.Option(
        help="edge: single edges; frozen-heads: paths from head to head, also through MLPs, with "
        "all other heads frozen."
    ),
]
Metric = Annotated[
    MetricName,
    typer.Option(help="Metric; kl is the divergence from the prediction on the clean prompts."),
]


@analysis_command("Patching edges", reads=("text", "corrupt"), is_resumable=True)
def paths(
    inputs: "Inputs",
    *,
    method: Patch = PatchName.RESAMPLE,
    mode: Mode = ModeName.EDGE,
    metric: Metric = MetricName.LOGIT_DIFF,
) -> "PathPatching":
    """Patch every edge of the computation graph in turn and report which ones matter."""
    from analyses import patch_paths  # noqa: PLC0415

    return patch_paths(
        inputs.model,
        *inputs.pairs,
        method=method.value,
        mode=mode.replace("-", " "),
        metric=inputs.metric(metric),
        **inputs.how_resumable(patch_paths),
    )
