"""The options of the commands about labels of prompts: ``probe`` and ``erase``."""

from typing import Annotated

import typer

At = Annotated[
    list[str] | None,
    typer.Option(
        help="Activations to read in every layer, e.g. resid_post, mlp_out, z; may be repeated.",
        show_default="resid_post",
    ),
]
Pos = Annotated[int, typer.Option(help="Position to read in each prompt; negative: from its end.")]
