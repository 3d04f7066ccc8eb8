"""``interp predict``: what does the model predict, with and without ablated heads?"""

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
        help="Position at which the prediction is read; negative: from the end.",
        show_default="an encoder's mask token, else the last token",
    ),
]
Likeliest = Annotated[int, typer.Option(help="Number of most probable tokens to report.", min=1)]
Ablated = Annotated[
    list[str] | None,
    typer.Option(
        "--ablate",
        help="A head or other component to ablate, e.g. L0H5; may be repeated.",
        show_default="none",
    ),
]
Method = Annotated[MethodName, typer.Option(help="What replaces an ablated activation.")]
Reference = Annotated[
    str | None,
    typer.Option(
        help="Prompts that means and resampled values come from: a file or a bundled set.",
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
    """Report the most probable tokens and each token's surprisal, also with heads ablated."""
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
