"""``interp predict``: what does the model predict, also with heads ablated?"""

from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command
from apps.commands.options import MethodName

if TYPE_CHECKING:
    from analyses import Predictions
    from apps.commands.inputs import Inputs

Position = Annotated[
    int | None,
    typer.Option(
        help="Where the prediction is read; negative: from the end.",
        show_default="an encoder's mask token, else the last token",
    ),
]
Likeliest = Annotated[int, typer.Option(help="Most probable tokens to report.", min=1)]
Ablated = Annotated[
    list[str] | None,
    typer.Option(
        "--ablate", help="A head or other part, e.g. L0H5; may be repeated.", show_default="none"
    ),
]
Method = Annotated[MethodName, typer.Option(help="What replaces what is ablated.")]
Reference = Annotated[
    str | None,
    typer.Option(
        help="Prompts that means or donors come from: a file or a bundled set.",
        show_default="the prompts themselves",
    ),
]


@analysis_command("Predicting", reads=("text", "target", "distractor"))
def predict(
    inputs: "Inputs",
    *,
    pos: Position = None,
    likeliest: Likeliest = 10,
    ablate: Ablated = None,
    method: Method = MethodName.MEAN,
    reference: Reference = None,
) -> "Predictions":
    """Report the most probable tokens and the surprisal of each, also with parts ablated."""
    from analyses import predictions  # noqa: PLC0415

    targets = inputs.targets
    return predictions(
        inputs.model,
        inputs.batch,
        pos=pos,
        top=likeliest,
        targets=targets,
        distractors=inputs.tokens("distractor")
        if targets is not None and inputs.all_have("distractor")
        else None,
        ablate=ablate or (),
        method=method.value,
        reference=None if reference is None else inputs.of_file(reference).batch,
        **inputs.how(predictions),
    )
