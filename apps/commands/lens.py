"""``interp lens``: what would the model predict after each layer?"""

from typing import TYPE_CHECKING

from apps.commands.command import analysis_command

if TYPE_CHECKING:
    from analyses import LogitLens
    from apps.commands.inputs import Inputs


@analysis_command("Reading each layer", reads=("target",))
def lens(inputs: "Inputs") -> "LogitLens":
    """Read a prediction from the stream after each layer (logit lens)."""
    from analyses import logit_lens  # noqa: PLC0415

    return logit_lens(inputs.model, inputs.batch, targets=inputs.targets)
