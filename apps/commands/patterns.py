"""``interp patterns``: what does each head attend to, on average?"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.commands.command import analysis_command

if TYPE_CHECKING:
    from analyses import AttentionStatistics
    from apps.commands.inputs import Inputs


class AttentionName(StrEnum):
    """An attention of an encoder–decoder."""

    ENCODER = "encoder"
    DECODER = "decoder"
    CROSS = "cross"


Offsets = Annotated[
    int, typer.Option(help="Measure attention to tokens up to this many positions back.", min=1)
]
Which = Annotated[
    AttentionName | None,
    typer.Option(help="For an encoder–decoder: which attention.", show_default="cross"),
]
Classes = Annotated[
    str | None,
    typer.Option(
        help="Classes of tokens to measure attention to, as a JSON object of texts or token ids: "
        '\'{"digits": ["0", "1"], "end": 3}\'.',
        show_default="none",
    ),
]


@analysis_command("Averaging attention")
def patterns(
    inputs: "Inputs", *, offsets: Offsets = 8, classes: Classes = None, attention: Which = None
) -> "AttentionStatistics":
    """Average each head's attention: entropy, distance, attention to BOS, previous token, ….

    For the attention pattern of one head on one prompt, use `interp explore`.
    """
    from analyses import attention_statistics  # noqa: PLC0415

    which = attention or (None if inputs.has_one_stack else AttentionName.CROSS)
    return attention_statistics(
        inputs.model,
        inputs.batch,
        offsets=offsets,
        classes=None if classes is None else _from_json(classes),
        attention=None if which is None else which.value,
        **inputs.how(attention_statistics),
    )


def _from_json(classes: str) -> Any:  # noqa: ANN401 - checked by the analysis
    """Parse the classes of tokens by name."""
    from interp.errors import InvalidInput, first_line, shorten  # noqa: PLC0415
    from interp.io import parse_json  # noqa: PLC0415

    try:
        found = parse_json(classes)
        if isinstance(found, dict):
            return found
        reason = "a list or a value"
    except ValueError as error:
        reason = first_line(error)
    raise InvalidInput(
        f"--classes {shorten(classes)} should be a JSON object from the name of each class to its "
        f'tokens, such as {{"digits": ["0", "1"]}}; got {reason}.'
    )
