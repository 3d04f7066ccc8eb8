"""``interp ablate``: which heads, or other parts, matter?"""

from typing import Any, Literal

import analyses
from analyses import Ablation
from apps.commands.inputs import Inputs
from interp.errors import InvalidInput, shorten
from interp.metrics import Metric


def ablate(  # noqa: PLR0913 - the options of one command
    inputs: Inputs,
    *,
    units: Literal["heads", "layers", "mlps", "neurons", "pairs"] = "heads",
    metric: str | Metric = "loss",
    method: Literal["zero", "mean", "resample"] = "mean",
    part: Literal["z", "pattern", "v"] = "z",
    layers: str | None = None,
    reference: Any = None,  # noqa: ANN401 - a batch
    per_position: bool = False,
    estimate: bool = False,
    largest: int | None = None,
) -> Ablation:
    """Ablate parts of a model, by the analysis that has more to say of heads where it can.

    Args:
        inputs: the model and the prompts.
        units: what to ablate; pairs are pairs of heads.
        metric: what is measured.
        method: what replaces an ablated activation.
        part: the tensor of a head that is replaced.
        layers: ablate in these layers only, e.g. 0,1; by default in all.
        reference: prompts that means and resampled values come from.
        per_position: take the mean separately at each position.
        estimate: estimate the effects from one gradient, to first order, instead of measuring them.
        largest: measure only this many units, those with the largest estimates; by default all.
    """
    is_plain = layers is None and reference is None and not (per_position or estimate or largest)
    if is_plain and units == "heads" and part == "z" and inputs.has_one_stack:
        how = inputs.how_resumable(analyses.ablate_heads)
        return analyses.ablate_heads(
            inputs.model, inputs.texts, metric=metric, method=method, **how
        )
    return analyses.ablate(
        inputs.model,
        inputs.batch,
        units=units,
        part=part,
        layers=None if layers is None else _numbers(layers),
        reference=reference,
        per_position=per_position,
        metric=metric,
        method=method,
        estimate=estimate,
        largest=largest,
        **inputs.how_resumable(analyses.ablate),
    )


def _numbers(layers: str) -> list[int]:
    """Parse a list of layers that are separated by commas."""
    try:
        return [int(layer) for layer in layers.split(",")]
    except ValueError as error:
        raise InvalidInput(
            f"--layers {shorten(layers)} should be layer numbers separated by commas, such as 0,1."
        ) from error
