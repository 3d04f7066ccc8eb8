"""``interp frequencies``: which frequencies does a model of modular arithmetic compute with?"""

from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command

if TYPE_CHECKING:
    from analyses import Frequencies
    from apps.commands.inputs import Inputs

Pos = Annotated[
    int, typer.Option(help="Position at which neurons and logits are read; negative: from the end.")
]


@analysis_command("Decomposing into frequencies")
def frequencies(inputs: "Inputs", *, pos: Pos = -1) -> "Frequencies":
    """Decompose embeddings, neurons and logits over the residues of the first prompt."""
    from analyses import frequencies as find_frequencies  # noqa: PLC0415

    return find_frequencies(inputs.model, inputs.texts[:1], pos=pos, **inputs.how(find_frequencies))
