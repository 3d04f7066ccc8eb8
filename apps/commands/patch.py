"""``interp patch``: where does the model represent what two texts differ in?"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command
from apps.commands.options import PairMetric, PairMetricName

if TYPE_CHECKING:
    from analyses import ActivationPatching
    from apps.commands.inputs import Inputs


class PointName(StrEnum):
    """The point that is patched."""

    RESID_PRE = "resid_pre"
    RESID_MID = "resid_mid"
    RESID_POST = "resid_post"
    ATTN_OUT = "attn_out"
    MLP_OUT = "mlp_out"
    Z = "z"
    Q = "q"
    K = "k"
    V = "v"
    PATTERN = "pattern"


class CellName(StrEnum):
    """The axes of a cell."""

    LAYER_POS = "layer-pos"
    LAYER_HEAD = "layer-head"
    LAYER = "layer"
    POS = "pos"
    LAYER_HEAD_POS = "layer-head-pos"


class DirectionName(StrEnum):
    """Which run's activations are copied into which run."""

    DENOISE = "denoise"
    NOISE = "noise"


At = Annotated[PointName, typer.Option(help="The activation to patch.")]
Over = Annotated[
    CellName,
    typer.Option(help="Axes that are patched index by index; other axes are patched as a whole."),
]
Direction = Annotated[
    DirectionName,
    typer.Option(help="denoise: copy clean activations into the corrupted run; noise: reverse."),
]


@analysis_command("Patching {at}", reads=("text", "corrupt"), is_resumable=True)
def patch(
    inputs: "Inputs",
    *,
    at: At = PointName.RESID_PRE,
    over: Over = CellName.LAYER_POS,
    direction: Direction = DirectionName.DENOISE,
    metric: PairMetric = PairMetricName.LOGIT_DIFF,
) -> "ActivationPatching":
    """Copy activations between clean and corrupted prompts and measure what that restores."""
    from analyses import patch_activations  # noqa: PLC0415

    return patch_activations(
        inputs.model,
        *inputs.pairs,
        metric=inputs.token_metric(metric),
        at=at.value,
        over=over.split("-"),
        direction=direction.value,
        **inputs.how_resumable(patch_activations),
    )
