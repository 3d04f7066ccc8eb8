"""Metrics: one number per prompt, computed from the logits.

A metric is data: it declares which positions and vocabulary columns it reads, so that nothing else
needs to be computed. Logarithms are natural: losses and divergences are in nats. A plain function
of the logits ``[batch pos vocab]`` is also a metric, which reads all of them (see :func:`measure`).

A target is the id of a token, or a text that is one token for the model that is measured, such as
``logit_diff(" Mary", " John")``; or one of these per prompt.

Positions count the real tokens of a row, as in ``pos=-1``; ``pos="mask"`` is the position of its
only mask token. The default is the position of the mask token if a row of an encoder has one, and
otherwise the last position.
"""

import reprlib
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from interp.errors import InvalidInput
from interp.io import TensorData
from interp.metrics.divergence import KL, KLAt, divergence, kl
from interp.metrics.measuring import (
    MetricLike,
    cause_of_nan,
    check_callable,
    check_values,
    gets_nan_at_padding,
    measure,
    measure_prompts,
    measure_stream,
    measured,
    name_and_unit,
    with_ids,
)
from interp.metrics.metric import (
    NO_MASK_TOKEN,
    Loss,
    MaskedLoss,
    Metric,
    Position,
    at_least_float32,
    batch_loss,
    loss,
    masked_loss,
    next_token_losses,
    parts_of_rows,
    relative_rounding,
)
from interp.metrics.position import (
    Accuracy,
    AtPosition,
    Logit,
    LogitDiff,
    Probability,
    accuracy,
    as_position,
    as_targets,
    at_position,
    columns_read,
    logit,
    logit_diff,
    prob,
    required_columns,
    row_targets,
)

__all__ = [
    "KINDS",
    "KL",
    "NO_MASK_TOKEN",
    "Accuracy",
    "AtPosition",
    "KLAt",
    "Logit",
    "LogitDiff",
    "Loss",
    "MaskedLoss",
    "Metric",
    "MetricLike",
    "Position",
    "Probability",
    "accuracy",
    "as_position",
    "at_least_float32",
    "at_position",
    "batch_loss",
    "cause_of_nan",
    "check_callable",
    "check_values",
    "columns_read",
    "divergence",
    "from_dict",
    "gets_nan_at_padding",
    "kl",
    "logit",
    "logit_diff",
    "loss",
    "masked_loss",
    "measure",
    "measure_prompts",
    "measure_stream",
    "measured",
    "name_and_unit",
    "next_token_losses",
    "parts_of_rows",
    "prob",
    "relative_rounding",
    "required_columns",
    "row_targets",
    "with_ids",
]

KINDS: dict[str, type[Metric]] = {
    kind.kind: kind
    for kind in (Loss, MaskedLoss, Logit, LogitDiff, Probability, Accuracy, KL, KLAt)
}
"""The kinds of metric by their names in JSON."""


def from_dict(
    values: Any,  # noqa: ANN401 - parsed JSON, checked here
    to_tensor: Callable[[Any], TensorData] = TensorData.from_json,
) -> Metric:
    """The metric that :meth:`Metric.to_dict` describes.

    Args:
        values: parsed JSON.
        to_tensor: function that reads what ``to_dict`` wrote for a reference or for tokens.

    Raises:
        InvalidInput: the kind is unknown, a field is missing or unknown, or a value is invalid.
    """
    if not isinstance(values, dict):
        got = reprlib.repr(values)
        raise InvalidInput(f"A metric read from JSON should be an object, got {got}.")
    rest = dict(values)
    name = rest.pop("kind", None)
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise InvalidInput(
            f"A metric read from JSON has a kind among {', '.join(KINDS)}; got "
            f"{reprlib.repr(name)}."
        )
    names = [field.name for field in fields(kind)]
    if set(rest) != set(names):
        raise InvalidInput(
            f"A metric of kind {kind.kind!r} has the fields {', '.join(names)}; got "
            f"{reprlib.repr(sorted(map(str, rest)))}."
        )

    def reference(value: Any) -> TensorData | None:  # noqa: ANN401 - parsed JSON
        return None if value is None else to_tensor(value)

    read: dict[str, Callable[[Any], Any]] = {
        "pos": as_position,
        "target": as_targets,
        "distractor": as_targets,
        "reference": reference,
    }
    made: dict[str, Any] = {n: read.get(n, to_tensor)(value) for n, value in rest.items()}
    return kind(**made)
