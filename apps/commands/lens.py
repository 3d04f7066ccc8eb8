"""``interp lens``: what would the model predict at each layer?"""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command

if TYPE_CHECKING:
    from analyses import LogitLens
    from apps.commands.inputs import Inputs


class NormName(StrEnum):
    """The divisor of the final norm."""

    RECOMPUTED = "recomputed"
    FINAL = "final"


At = Annotated[
    list[str] | None,
    typer.Option(
        help="Activations to read, e.g. resid_pre, resid_mid, mlp_out; may be repeated.",
        show_default="resid_pre",
    ),
]
Norm = Annotated[
    NormName,
    typer.Option(
        help="Divisor of the final norm: recomputed for each activation, or that of the final "
        "stream."
    ),
]
Tuned = Annotated[
    Path | None,
    typer.Option("--lens", help="File of a tuned lens of this model; see `interp train-lens`."),
]


@analysis_command("Reading each layer", reads=("text", "target"))
def lens(
    inputs: "Inputs",
    *,
    at: At = None,
    norm: Norm = NormName.RECOMPUTED,
    lens: Tuned = None,
) -> "LogitLens":
    """Read a prediction from the residual stream at each layer (logit lens or tuned lens)."""
    from analyses import (  # noqa: PLC0415 - imports torch
        TunedLens,
        logit_lens,
    )

    return logit_lens(
        inputs.model,
        inputs.batch,
        at=at or "resid_pre",
        norm=norm.value,
        lens=None if lens is None else TunedLens.load(lens, inputs.model),
        targets=inputs.targets,
        **inputs.how(logit_lens),
    )
