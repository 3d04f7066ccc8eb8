"""``interp compare``: how do two models, or two steps of a training, differ?"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command
from apps.commands.options import Metric

if TYPE_CHECKING:
    from analyses import Comparison
    from analyses.result import Result
    from apps.commands.inputs import Inputs
    from interp import Transformer


class ComparedName(StrEnum):
    """What is asked of both models."""

    ABLATE = "ablate"
    PATTERNS = "patterns"
    ROLES = "roles"


Other = Annotated[
    str | None,
    typer.Option(
        help="The model to compare with, or a step of a training such as python-2l@400.",
        show_default="the first step of the model's training",
    ),
]
Analysis = Annotated[ComparedName, typer.Option(help="What is asked of both models.")]


@analysis_command("Comparing models")
def compare(
    inputs: "Inputs",
    *,
    other: Other = None,
    analysis: Analysis = ComparedName.ABLATE,
    metric: Metric = None,
) -> "Comparison":
    """Ask two models the same question; differences are the model's less the other's."""
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
    """The name of the first step of a model's training whose weights were kept."""
    import interp  # noqa: PLC0415
    from interp.errors import InvalidInput, ModelLoadError  # noqa: PLC0415

    name = (model.config.name or "").partition("@")[0]
    try:
        steps = interp.history(name).checkpoints
    except ModelLoadError:
        steps = []
    if not steps:
        raise InvalidInput(
            f"No weights of the steps of {name or 'this model'} were kept; give the model to "
            "compare with as --other."
        )
    return f"{name}@{steps[0]}"
