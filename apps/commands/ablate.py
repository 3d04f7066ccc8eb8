"""``interp ablate``: which heads, or other parts, matter?"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command
from apps.commands.options import MethodName, Metric, MetricName

if TYPE_CHECKING:
    from analyses import Ablation, HeadAblation
    from apps.commands.inputs import Inputs


class UnitName(StrEnum):
    """The parts that are ablated, one at a time."""

    HEADS = "heads"
    LAYERS = "layers"
    MLPS = "mlps"
    NEURONS = "neurons"
    PAIRS = "pairs"


class PartName(StrEnum):
    """The tensor of a head that is replaced."""

    Z = "z"
    PATTERN = "pattern"
    V = "v"


Unit = Annotated[UnitName, typer.Option(help="What to ablate; pairs are pairs of heads.")]
Method = Annotated[MethodName, typer.Option(help="What replaces an ablated activation.")]
Part = Annotated[PartName, typer.Option(help="The tensor of a head that is replaced.")]
Layers = Annotated[
    str | None,
    typer.Option(help="Ablate in these layers only, e.g. 0,1.", show_default="all"),
]
Reference = Annotated[
    str | None,
    typer.Option(
        help="Prompts that means and resampled values come from: a file or a bundled set.",
        show_default="the prompts themselves",
    ),
]
PerPosition = Annotated[
    bool,
    typer.Option("--per-position", help="Take the mean separately at each position."),
]


@analysis_command("Ablating {units}", folder="{model}-{metric}-{method}", is_resumable=True)
def ablate(  # noqa: PLR0913 - the options of one command
    inputs: "Inputs",
    *,
    units: Unit = UnitName.HEADS,
    metric: Metric = None,
    method: Method = MethodName.MEAN,
    part: Part = PartName.Z,
    layers: Layers = None,
    reference: Reference = None,
    per_position: PerPosition = False,
) -> "HeadAblation | Ablation":
    """Ablate each head (or layer, MLP, …) in turn and report which ones matter."""
    import analyses  # noqa: PLC0415

    measured = inputs.metric(metric or MetricName.LOSS)
    is_plain = layers is None and reference is None and not per_position
    if is_plain and units is UnitName.HEADS and part is PartName.Z and inputs.has_one_stack:
        return analyses.ablate_heads(
            inputs.model,
            inputs.texts,
            metric=measured,
            method=method.value,
            **inputs.how_resumable(analyses.ablate_heads),
        )
    return analyses.ablate(
        inputs.model,
        inputs.batch,
        units=units.value,
        part=part.value,
        layers=None if layers is None else _numbers(layers),
        reference=None if reference is None else inputs.of_file(reference).batch,
        per_position=per_position,
        metric=measured,
        method=method.value,
        **inputs.how_resumable(analyses.ablate),
    )


def _numbers(layers: str) -> list[int]:
    """Parse a list of layers that are separated by commas."""
    from interp.errors import InvalidInput, shorten  # noqa: PLC0415

    try:
        return [int(layer) for layer in layers.split(",")]
    except ValueError as error:
        raise InvalidInput(
            f"--layers {shorten(layers)} should be layer numbers separated by commas, such as 0,1."
        ) from error
