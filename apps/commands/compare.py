"""``interp compare``: how do two models, or two steps of a training, differ?"""

from typing import Literal

import analyses
import interp
from analyses import Comparison
from analyses.results import Result
from apps.commands.inputs import Inputs
from interp.errors import InvalidInput, ModelLoadError
from interp.kernels import can_pack
from interp.loading import PACKED, kernel_of


def compare(
    inputs: Inputs,
    *,
    other: str | None = None,
    analysis: Literal["ablate", "patterns", "roles", "census"] = "ablate",
    metric: str = "loss",
) -> Comparison:
    """Run one analysis on two models.

    Args:
        inputs: the model and the prompts.
        other: model to compare with; python-2l@400 is python-2l after 400 steps of its
            training; by default the model's first checkpoint.
        analysis: the analysis to run on both models.
        metric: the name of what ``ablate`` measures.
    """

    def ask(model: interp.Transformer) -> Result:
        if analysis == "roles":
            return analyses.head_roles(model, **inputs.how(analyses.head_roles, "rows"))
        if analysis == "census":
            return analyses.head_census(model, **inputs.how(analyses.head_census, "rows"))
        if analysis == "patterns":
            how = inputs.how(analyses.attention_statistics)
            return analyses.attention_statistics(model, inputs.batch, **how)
        measured, how = inputs.metric(metric), inputs.how(analyses.ablate_heads)
        return analyses.ablate_heads(model, inputs.batch, metric=measured, **how)

    first = interp.load(other or _first_step(inputs.model), inputs.model.device)
    if kernel_of(inputs.model) == PACKED and can_pack(first):
        first = interp.packed(first)
    return analyses.compare(first, inputs.model, analysis=ask)


def _first_step(model: interp.Transformer) -> str:
    """The name of the first checkpoint of a model's training."""
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
