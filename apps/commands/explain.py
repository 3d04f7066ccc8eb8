"""``interp explain``: which circuit makes this answer?"""

from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.command import analysis_command
from apps.commands.options import PairMetric, PairMetricName

if TYPE_CHECKING:
    from analyses import Explanation
    from apps.commands.inputs import Inputs

Most = Annotated[
    int, typer.Option(help="Largest number of edges of a circuit that counts as small.", min=1)
]


@analysis_command("Running circuits", reads=("text", "corrupt"))
def explain(
    inputs: "Inputs",
    *,
    metric: PairMetric = PairMetricName.LOGIT_DIFF,
    most: Most = 64,
) -> "Explanation":
    """Find the smallest circuit that gives an answer, check it and describe its components."""
    from analyses import explain as find_circuit  # noqa: PLC0415

    return find_circuit(
        inputs.model,
        *inputs.pairs,
        metric=inputs.token_metric(metric),
        most=most,
        **inputs.how(find_circuit),
    )
