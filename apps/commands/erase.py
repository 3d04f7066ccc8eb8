"""``interp erase``: what depends on a label that can be read from activations?"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command
from apps.commands.labelled import At, Pos
from apps.commands.options import Metric

if TYPE_CHECKING:
    from analyses import Erasing
    from apps.commands.inputs import Inputs


class ErasureName(StrEnum):
    """The method of erasure."""

    LEACE = "leace"
    PROBE = "probe"


Method = Annotated[
    ErasureName,
    typer.Option(
        help="leace: erase all that any linear probe can read; probe: only the directions that one "
        "probe reads."
    ),
]


@analysis_command("Erasing labels", reads=("text", "target"), is_resumable=True)
def erase(
    inputs: "Inputs",
    *,
    metric: Metric = None,
    at: At = None,
    pos: Pos = -1,
    method: Method = ErasureName.LEACE,
) -> "Erasing":
    """Erase each prompt's target from the activations of every layer, and measure the effect."""
    from analyses import erase as erase_labels  # noqa: PLC0415

    return erase_labels(
        inputs.model,
        inputs.batch,
        inputs.labels,
        metric=inputs.metric(str(metric)),
        at=at or "resid_post",
        pos=pos,
        method=method.value,
        **inputs.how_resumable(erase_labels),
    )
