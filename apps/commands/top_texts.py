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
    """What of a head is measured."""

    ATTENTION = "attention"
    WRITE = "write"


class EndName(StrEnum):
    """Which end of the distribution."""

    HIGHEST = "highest"
    LOWEST = "lowest"


Of = Annotated[
    str,
    typer.Option(help="A head (L1H0), a neuron (L0N12), a sub-layer (L0MLP) or a place."),
]
By = Annotated[
    ByName | None,
    typer.Option(help="Of a head: its attention, or what it writes.", show_default="attention"),
]
End = Annotated[EndName, typer.Option(help="Which end of the distribution.")]


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
    """Find where in a corpus a head attends most, a neuron is most active, a stream is largest."""
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
