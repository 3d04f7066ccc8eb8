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
    """Whose divisor the final norm has."""

    RECOMPUTED = "recomputed"
    FINAL = "final"


At = Annotated[
    list[str] | None,
    typer.Option(
        help="What to read, e.g. resid_pre, resid_mid, mlp_out; may be repeated.",
        show_default="resid_pre",
    ),
]
Norm = Annotated[NormName, typer.Option(help="Whose divisor the final norm has.")]
Tuned = Annotated[
    Path | None,
    typer.Option("--lens", help="A tuned lens of this model, as `interp train-lens` writes it."),
]


@analysis_command("Reading each layer", reads=("text", "target"))
def lens(
    inputs: "Inputs",
    *,
    at: At = None,
    norm: Norm = NormName.RECOMPUTED,
    lens: Tuned = None,
) -> "LogitLens":
    """Read a prediction from the stream at each layer (logit or tuned lens)."""
    from analyses import logit_lens  # noqa: PLC0415
    from interp import TunedLens  # noqa: PLC0415

    return logit_lens(
        inputs.model,
        inputs.batch,
        at=at or "resid_pre",
        norm=norm.value,
        lens=None if lens is None else TunedLens.load(lens, inputs.model),
        targets=inputs.targets,
        **inputs.how(logit_lens),
    )
