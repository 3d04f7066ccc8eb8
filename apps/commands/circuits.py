"""``interp circuits``: what do the weights of the heads say?"""

from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command

if TYPE_CHECKING:
    from analyses import Composition
    from apps.commands.inputs import Inputs

Offset = Annotated[int, typer.Option(help="Query position − key position, with rotary positions.")]


@analysis_command("Reading weights", reads=())
def circuits(inputs: "Inputs", *, offset: Offset = 0) -> "Composition":
    """Measure which heads read what earlier heads write, from the weights alone."""
    from analyses import composition  # noqa: PLC0415

    return composition(inputs.model, offset=offset)
