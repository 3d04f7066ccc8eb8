"""``interp dla``: which components write a logit?"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command

if TYPE_CHECKING:
    from analyses import DirectLogitAttribution
    from apps.commands.inputs import Inputs


class TermName(StrEnum):
    """The terms that a logit is the sum of."""

    COMPONENT = "component"
    HEAD = "head"
    SOURCE = "source"


By = Annotated[
    TermName,
    typer.Option(help="One term per component (a layer's heads together), head or source token."),
]


@analysis_command("Attributing logits", reads=("text", "target", "distractor"))
def dla(inputs: "Inputs", *, by: By = TermName.HEAD) -> "DirectLogitAttribution":
    """Attribute the logit of each target, minus that of its distractor, to what wrote it."""
    from analyses import direct_logit_attribution  # noqa: PLC0415

    distractor = inputs.tokens("distractor") if inputs.all_have("distractor") else None
    return direct_logit_attribution(
        inputs.model,
        inputs.batch,
        target=inputs.tokens("target"),
        distractor=distractor,
        by=by.value,
        **inputs.how(direct_logit_attribution),
    )
