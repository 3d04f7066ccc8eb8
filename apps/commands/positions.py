"""``interp positions``: how does the model encode positions?"""

from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command

if TYPE_CHECKING:
    from analyses import Positions
    from apps.commands.inputs import Inputs

Longest = Annotated[int, typer.Option(help="Number of positions to read, from the first.", min=2)]


@analysis_command("Reading positions", reads=())
def positions(inputs: "Inputs", *, longest: Longest = 256) -> "Positions":
    """Describe the position scheme: shifts as linear maps, kernels and biases by offset."""
    from analyses import positions as read_positions  # noqa: PLC0415

    return read_positions(inputs.model, longest=longest, **inputs.how(read_positions))
