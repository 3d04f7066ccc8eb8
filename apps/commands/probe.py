"""``interp probe``: can a label be read from activations by a linear map?"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command
from apps.commands.labelled import At, Pos

if TYPE_CHECKING:
    from analyses import Probe
    from apps.commands.inputs import Inputs


class ProbeName(StrEnum):
    """The kind of probe."""

    RIDGE = "ridge"
    LOGISTIC = "logistic"


Kind = Annotated[ProbeName, typer.Option(help="The kind of probe.")]
Folds = Annotated[int, typer.Option(help="Number of folds of the cross-validation.", min=2)]


@analysis_command("Fitting probes", reads=("text", "target"))
def probe(
    inputs: "Inputs",
    *,
    at: At = None,
    pos: Pos = -1,
    kind: Kind = ProbeName.RIDGE,
    folds: Folds = 5,
) -> "Probe":
    """Fit linear probes that read each prompt's target from the activations of every layer."""
    from analyses import probe as fit_probes  # noqa: PLC0415

    return fit_probes(
        inputs.model,
        inputs.batch,
        inputs.labels,
        at=at or "resid_post",
        pos=pos,
        kind=kind.value,
        folds=folds,
        **inputs.how(fit_probes),
    )
