"""The options of commands that ask where a label can be read: ``probe`` and ``erase``."""

from typing import Annotated

import typer

At = Annotated[
    list[str] | None,
    typer.Option(
        help="A point of every layer, e.g. resid_post, mlp_out, z; may be repeated.",
        show_default="resid_post",
    ),
]
Pos = Annotated[int, typer.Option(help="The position, among the tokens of each prompt.")]
