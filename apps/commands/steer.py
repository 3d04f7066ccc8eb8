"""``interp steer``: how does a vector added to the stream change what a model writes?"""

from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command

if TYPE_CHECKING:
    from analyses import Steering
    from apps.commands.inputs import Inputs

Layer = Annotated[int, typer.Option(help="Where the vector is added; negative: from the end.")]
At = Annotated[str, typer.Option(help="A point of the stream, e.g. resid_pre, mlp_out.")]
Strength = Annotated[
    list[float] | None,
    typer.Option(help="What it is multiplied by; may be repeated.", show_default="0, 1, 2, 4"),
]
NewTokens = Annotated[int, typer.Option(help="Tokens to add, at most.", min=1)]
Temperature = Annotated[float, typer.Option(help="Of the sampling; 0: most probable token.", min=0)]


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
    """Continue the corrupted prompts, with the vector from them to the clean ones added."""
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
