"""``interp roles``: what does each head do on repeated random tokens?"""

from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command

if TYPE_CHECKING:
    from analyses import HeadRoles
    from apps.commands.inputs import Inputs

Half = Annotated[
    int | None,
    typer.Option(
        help="Number of tokens that are repeated.", min=1, show_default="60, or as many as fit"
    ),
]
Sequences = Annotated[int, typer.Option(help="Number of random sequences.", min=1)]
Repeats = Annotated[
    int, typer.Option(help="How many times the tokens occur in each sequence.", min=2)
]

FirstMLP = Annotated[
    bool,
    typer.Option(
        "--first-mlp", help="Measure copying on embeddings with the output of the first MLP added."
    ),
]


@analysis_command("Measuring roles", reads=())
def roles(
    inputs: "Inputs",
    *,
    half: Half = None,
    sequences: Sequences = 32,
    repeats: Repeats = 2,
    first_mlp: FirstMLP = False,
) -> "HeadRoles":
    """Find previous-token, induction and other heads on repeated random tokens."""
    from analyses import head_roles  # noqa: PLC0415

    how = inputs.how(head_roles, "rows")
    return head_roles(
        inputs.model, half=half, rows=sequences, repeats=repeats, first_mlp=first_mlp, **how
    )
