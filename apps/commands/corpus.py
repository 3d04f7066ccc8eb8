"""The options of commands that read a corpus: a file that may be larger than memory."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from apps.commands.inputs import Inputs

Texts = Annotated[
    str | None,
    typer.Option(
        help="A file of any size with one text per line (.jsonl: objects with a text; "
        ".csv, .parquet: a column text), the folder of a dataset, or a bundled set.",
        show_default="the model's own prompts",
    ),
]
Bos = Annotated[bool, typer.Option("--bos", help="Include values at the BOS token.")]


def corpus_of(inputs: "Inputs", texts: str | None) -> Path:
    """The file that the option names, or the prompts of the model's card.

    Raises:
        InvalidInput: no file is given, and the model has no prompts of its own.
    """
    from apps.defaults import default_prompts  # noqa: PLC0415
    from interp.text import path_of_prompts  # noqa: PLC0415

    name = inputs.model.config.name or "unnamed"
    return path_of_prompts(texts or default_prompts(name, option="--texts"))
