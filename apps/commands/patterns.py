"""``interp patterns``: what does each head attend to, on average?"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command

if TYPE_CHECKING:
    from analyses import AttentionStatistics
    from apps.commands.inputs import Inputs


class AttentionName(StrEnum):
    """Which attention of an encoder–decoder."""

    ENCODER = "encoder"
    DECODER = "decoder"
    CROSS = "cross"


Offsets = Annotated[int, typer.Option(help="Positions back to measure masses at.", min=1)]
Which = Annotated[
    AttentionName | None,
    typer.Option(help="Of an encoder–decoder: which attention.", show_default="cross"),
]


@analysis_command("Averaging attention")
def patterns(
    inputs: "Inputs", *, offsets: Offsets = 8, attention: Which = None
) -> "AttentionStatistics":
    """Average each head's attention: entropy, distance, masses on BOS, previous token, ….

    For the pattern of one head on one prompt, see `interp explore`.
    """
    from analyses import attention_statistics  # noqa: PLC0415

    which = attention or (None if inputs.has_one_stack else AttentionName.CROSS)
    return attention_statistics(
        inputs.model,
        inputs.batch,
        offsets=offsets,
        attention=None if which is None else which.value,
    )
