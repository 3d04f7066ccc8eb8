"""``interp compare``: how do two models, or two steps of a training, differ?"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command
from apps.commands.options import Metric

if TYPE_CHECKING:
    from analyses import Comparison
    from analyses.results import Result
    from apps.commands.inputs import Inputs
    from interp import Transformer


class ComparedName(StrEnum):
    """The analysis that both models are compared by."""

    ABLATE = "ablate"
    PATTERNS = "patterns"
    ROLES = "roles"


Other = Annotated[
    str | None,
    typer.Option(
        help="Model to compare with; python-2l@400 is python-2l after 400 steps of its training.",
        show_default="the model's first checkpoint",
    ),
]
Analysis = Annotated[ComparedName, typer.Option(help="The analysis to run on both models.")]


@analysis_command("Comparing models")
def compare(
    inputs: "Inputs",
    *,
    other: Other = None,
    analysis: Analysis = ComparedName.ABLATE,
    metric: Metric = None,
) -> "Comparison":
    """Run one analysis on two models and report the differences, --model minus --other."""
    import interp  # noqa: PLC0415
    from analyses import ablate_heads, attention_statistics, head_roles  # noqa: PLC0415
    from analyses import compare as compare_models  # noqa: PLC0415

    def ask(model: "Transformer") -> "Result":
        if analysis is ComparedName.ROLES:
            return head_roles(model, **inputs.how(head_roles, "rows"))
        if analysis is ComparedName.PATTERNS:
            how = inputs.how(attention_statistics)
            return attention_statistics(model, inputs.batch, **how)
        measured, how = inputs.metric(metric or "loss"), inputs.how(ablate_heads)
        return ablate_heads(model, inputs.batch, metric=measured, **how)

    first = interp.load(other or _first_step(inputs.model), inputs.model.device)
    return compare_models(first, inputs.model, analysis=ask)


def _first_step(model: "Transformer") -> str:
    """The name of the first checkpoint of a model's training."""
    import interp  # noqa: PLC0415
    from interp.errors import InvalidInput, ModelLoadError  # noqa: PLC0415

    name = (model.config.name or "").partition("@")[0]
    try:
        steps = interp.history(name).checkpoints
    except ModelLoadError:
        steps = []
    if not steps:
        raise InvalidInput(
            f"{name or 'This model'} has no checkpoints of its training; give the model to compare "
            "with as --other."
        )
    return f"{name}@{steps[0]}"
