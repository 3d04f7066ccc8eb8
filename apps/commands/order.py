"""``interp order``: which heads use the order of tokens, and through the mask or positions?"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command

if TYPE_CHECKING:
    from analyses import OrderSensitivity
    from apps.commands.inputs import Inputs


class ScopeName(StrEnum):
    """What is permuted."""

    WHOLE = "whole"
    OWN = "own"


Scope = Annotated[
    ScopeName, typer.Option(help="Permute the prompt (whole), or each part's own input (own).")
]
Permutation = Annotated[
    list[str] | None,
    typer.Option(
        help="A kind of permutation; may be repeated.", show_default="random, swap and block"
    ),
]
Draws = Annotated[int, typer.Option(help="Number of permutations of each kind.", min=1)]


@analysis_command("Permuting tokens")
def order(
    inputs: "Inputs",
    *,
    permutation: Permutation = None,
    scope: Scope = ScopeName.WHOLE,
    draws: Draws = 4,
) -> "OrderSensitivity":
    """Permute tokens, with and without mask and positions, to find which heads use their order."""
    from analyses import order_sensitivity  # noqa: PLC0415
    from analyses.methods.symmetries import KINDS  # noqa: PLC0415

    return order_sensitivity(
        inputs.model,
        inputs.batch,
        permutations=permutation or KINDS,
        scope=scope.value,
        draws=draws,
        **inputs.how(order_sensitivity),
    )
