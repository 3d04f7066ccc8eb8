"""``interp steer``: how does a vector added to the stream change what a model writes?"""

from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command

if TYPE_CHECKING:
    from analyses import Steering
    from apps.commands.inputs import Inputs

Layer = Annotated[
    int, typer.Option(help="Layer at which the vector is added; negative: from the end.")
]
At = Annotated[
    str, typer.Option(help="Activation that the vector is added to, e.g. resid_pre, mlp_out.")
]
Strength = Annotated[
    list[float] | None,
    typer.Option(help="Factor of the vector; may be repeated.", show_default="0, 1, 2, 4"),
]
NewTokens = Annotated[int, typer.Option(help="Largest number of tokens to generate.", min=1)]
Temperature = Annotated[
    float, typer.Option(help="Sampling temperature; 0: always the most probable token.", min=0)
]


@analysis_command("Generating texts", reads=("text", "corrupt"))
def steer(
    inputs: "Inputs",
    *,
    layer: Layer = -1,
    at: At = "resid_pre",
    strength: Strength = None,
    new_tokens: NewTokens = 20,
    temperature: Temperature = 0.0,
) -> "Steering":
    """Continue the corrupted prompts with the vector clean − corrupted added to the stream."""
    import analyses  # noqa: PLC0415

    clean, corrupt = inputs.pairs
    return analyses.steer(
        inputs.model,
        corrupt,
        layer=layer,
        at=at,
        contrast=(clean, corrupt),
        strengths=strength or (0.0, 1.0, 2.0, 4.0),
        new_tokens=new_tokens,
        temperature=temperature,
        **inputs.how(analyses.steer),
    )
