"""``interp ablate``: which heads matter?"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import Metric, MetricName, Seed, analysis_command

if TYPE_CHECKING:
    from analyses import HeadAblation
    from apps.commands.inputs import Inputs


class MethodName(StrEnum):
    """What replaces the output of a head."""

    ZERO = "zero"
    MEAN = "mean"
    RESAMPLE = "resample"


Method = Annotated[MethodName, typer.Option(help="What replaces a head's output.")]


@analysis_command("Ablating heads", folder="{model}-{metric}-{method}")
def ablate(
    inputs: "Inputs",
    *,
    metric: Metric = None,
    method: Method = MethodName.MEAN,
    seed: Seed = 0,
) -> "HeadAblation":
    """Ablate each head in turn and report which heads matter."""
    from analyses import ablate_heads  # noqa: PLC0415

    return ablate_heads(
        inputs.model,
        inputs.texts,
        metric=inputs.metric(metric or MetricName.LOSS),
        method=method.value,
        seed=seed,
        progress=inputs.progress,
    )
