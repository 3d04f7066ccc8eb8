"""``interp steer``: what does a direction of the stream change in what a model writes?"""

from collections.abc import Sequence
from typing import Any

import analyses
from analyses import Steering
from apps.commands.inputs import Inputs
from apps.commands.readers import with_dictionaries_of
from interp.errors import InvalidInput


def steer(  # noqa: PLR0913 - the options of one command
    inputs: Inputs,
    *,
    layer: int | None = None,
    at: str = "resid_pre",
    feature: str | None = None,
    dictionaries: Sequence[str] | None = None,
    strengths: Sequence[float] = (0.0, 1.0, 2.0, 4.0),
    new_tokens: int = 20,
    temperature: float = 0.0,
) -> Steering:
    """Continue prompts with a vector added to the stream, and without it.

    Args:
        inputs: the model and the prompts; pairs, unless there is a feature.
        layer: layer at which the vector is added; negative: from the end.
        at: a point of the stream, or of what is written to it, such as ``mlp_out``.
        feature: a feature of a dictionary, such as ``L0F17``, whose decoder is the vector; the
            clean prompts are continued.
        dictionaries: the dictionaries that have the feature.
        strengths: factors that the vector is multiplied by.
        new_tokens: number of tokens to add, at most.
        temperature: sampling temperature; 0 takes the most probable token.

    Raises:
        InvalidInput: dictionaries without a feature or a feature without dictionaries, or as for
            :func:`analyses.steer`.
    """
    how: dict[str, Any] = {
        "strengths": strengths,
        "new_tokens": new_tokens,
        "temperature": temperature,
        **inputs.how(analyses.steer),
    }
    if feature is None:
        if dictionaries:
            raise InvalidInput("--dictionary has no effect without --feature, such as L0F17.")
        clean, corrupt = inputs.pairs
        layer = -1 if layer is None else layer
        return analyses.steer(
            inputs.model, corrupt, layer=layer, at=at, contrast=(clean, corrupt), **how
        )
    if not dictionaries:
        raise InvalidInput(
            f"--feature {feature} needs its dictionary: --dictionary python-4l/mlp-0."
        )
    model = with_dictionaries_of(inputs, dictionaries)
    return analyses.steer(model, inputs.batch, feature=feature, layer=layer, at=at, **how)
