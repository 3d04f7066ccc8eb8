"""``interp top-texts``: where in a corpus is a head, a neuron or a stream at its largest?"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command
from apps.commands.corpus import Bos, Texts, corpus_of

if TYPE_CHECKING:
    from analyses import TopTexts
    from apps.commands.inputs import Inputs


class ByName(StrEnum):
    """The quantity that is measured for a head."""

    ATTENTION = "attention"
    WRITE = "write"


class EndName(StrEnum):
    """An end of the distribution."""

    HIGHEST = "highest"
    LOWEST = "lowest"


Of = Annotated[
    str,
    typer.Option(
        help="A head (L1H0), neuron (L0N12), sub-layer (L0MLP) or point (blocks.1.hook_resid_post)."
    ),
]
By = Annotated[
    ByName | None,
    typer.Option(
        help="For a head: the attention of a query to a key, or the norm of what it writes.",
        show_default="attention",
    ),
]
End = Annotated[EndName, typer.Option(help="Report the highest or the lowest values.")]


@analysis_command("Reading texts", reads=())
def top_texts(
    inputs: "Inputs",
    *,
    of: Of = "L0H0",
    texts: Texts = None,
    by: By = None,
    end: End = EndName.HIGHEST,
    bos: Bos = False,
) -> "TopTexts":
    """Find where in a corpus a head attends most or a neuron is most active."""
    import analyses  # noqa: PLC0415

    return analyses.top_texts(
        inputs.model,
        corpus_of(inputs, texts),
        of=of,
        by=None if by is None else by.value,
        end=end.value,
        bos=bos,
        **inputs.how(analyses.top_texts),
    )
