"""``interp ablate``: which heads, or other parts, matter?"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import Metric, MetricName, Seed, analysis_command

if TYPE_CHECKING:
    from analyses import Ablation, HeadAblation
    from apps.commands.inputs import Inputs


class UnitName(StrEnum):
    """What is ablated."""

    HEADS = "heads"
    LAYERS = "layers"
    MLPS = "mlps"
    NEURONS = "neurons"
    PAIRS = "pairs"


class MethodName(StrEnum):
    """What replaces the output of a head."""

    ZERO = "zero"
    MEAN = "mean"
    RESAMPLE = "resample"


class PartName(StrEnum):
    """The tensor of a head that is replaced."""

    Z = "z"
    PATTERN = "pattern"
    V = "v"


Unit = Annotated[UnitName, typer.Option(help="What is ablated; pairs are of heads.")]
Method = Annotated[MethodName, typer.Option(help="What replaces a head's output.")]
Part = Annotated[PartName, typer.Option(help="The tensor of a head that is replaced.")]


@analysis_command("Ablating {units}", folder="{model}-{metric}-{method}")
def ablate(
    inputs: "Inputs",
    *,
    units: Unit = UnitName.HEADS,
    metric: Metric = None,
    method: Method = MethodName.MEAN,
    part: Part = PartName.Z,
    seed: Seed = 0,
) -> "HeadAblation | Ablation":
    """Ablate each head (layer, MLP, …) in turn and report which matter."""
    import analyses  # noqa: PLC0415

    measured = inputs.metric(metric or MetricName.LOSS)
    if units is UnitName.HEADS and part is PartName.Z and inputs.has_one_stack:
        return analyses.ablate_heads(
            inputs.model,
            inputs.texts,
            metric=measured,
            method=method.value,
            seed=seed,
            progress=inputs.progress,
        )
    return analyses.ablate(
        inputs.model,
        inputs.batch,
        units=units.value,
        part=part.value,
        metric=measured,
        method=method.value,
        seed=seed,
        progress=inputs.progress,
    )
