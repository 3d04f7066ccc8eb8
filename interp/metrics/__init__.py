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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InvalidInput
from interp.integers import whole_number
from interp.io import TensorData
from interp.metrics.divergence import KL, KLAt, divergence
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
    Targets,
    at_position,
    columns_read,
    required_columns,
    row_targets,
)
from interp.metrics.prompts import logit_diff_of_prompts, masked_loss_of_targets, tokens_of_prompts

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
    "logit_diff_of_prompts",
    "loss",
    "masked_loss",
    "masked_loss_of_targets",
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
    "tokens_of_prompts",
    "with_ids",
]

KINDS: dict[str, type[Metric]] = {
    kind.kind: kind
    for kind in (Loss, MaskedLoss, Logit, LogitDiff, Probability, Accuracy, KL, KLAt)
}
"""The kinds of metric by their names in JSON."""
TargetLike = int | str | Sequence[int | str] | Tensor
WHOLE_NUMBERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def loss() -> Loss:
    """Next-token cross-entropy in nats, mean over each prompt."""
    return Loss()


def masked_loss(tokens: Int[Tensor, "*batch pos"] | Sequence[object]) -> MaskedLoss:
    """Cross-entropy in nats of the true token at each mask token, mean over each prompt.

    Args:
        tokens: the true token of each position; only read at mask tokens.
    """
    try:
        ids = torch.as_tensor(tokens)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInput(f"masked_loss takes token ids [batch pos]: {error}") from error
    if ids.ndim not in (1, 2) or ids.dtype not in WHOLE_NUMBERS:
        raise InvalidInput(
            f"masked_loss takes token ids [batch pos]; got {tuple(ids.shape)} {ids.dtype}."
        )
    return MaskedLoss(None, TensorData(torch.atleast_2d(ids.long())))


def logit(target: TargetLike, pos: Position = None) -> Logit:
    """The logit of ``target`` (a token, or one per prompt) at a position."""
    return Logit(as_position(pos), _targets(target))


def logit_diff(target: TargetLike, distractor: TargetLike, pos: Position = None) -> LogitDiff:
    """The logit of ``target`` minus that of ``distractor`` at a position."""
    return LogitDiff(as_position(pos), _targets(target), _targets(distractor))


def prob(target: TargetLike, pos: Position = None) -> Probability:
    """The probability of ``target`` at a position."""
    return Probability(as_position(pos), _targets(target))


def accuracy(target: TargetLike, pos: Position = None) -> Accuracy:
    """1 where ``target`` has the highest logit at a position, else 0."""
    return Accuracy(as_position(pos), _targets(target))


def kl(reference: Float[Tensor, "batch pos vocab"], pos: Position = None) -> KL | KLAt:
    """KL(reference ‖ model) in nats, at a position, or by default the mean over all positions."""
    data = TensorData(reference.detach())
    return KL(None, data) if pos is None else KLAt(as_position(pos), data)


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
    read = {"pos": as_position, "target": _targets, "distractor": _targets}
    made: dict[str, Any] = {n: read.get(n, to_tensor)(value) for n, value in rest.items()}
    return kind(**made)


def as_position(pos: object) -> Position:
    """The checked value of a ``pos=`` argument.

    Raises:
        InvalidInput: it is not an integer, ``"mask"`` or ``None``.
    """
    if pos is None:
        return None
    if isinstance(pos, str) and pos == "mask":
        return "mask"
    try:
        return whole_number(pos)
    except TypeError as error:
        raise InvalidInput(
            f'pos={reprlib.repr(pos)} should be a whole number, "mask" or None.'
        ) from error


def _targets(target: Any) -> Targets:  # noqa: ANN401 - checked here
    def token(value: Any) -> int | str:  # noqa: ANN401 - likewise
        return value if isinstance(value, str) else whole_number(value)

    is_several = isinstance(target, Iterable) and not isinstance(target, str)
    try:
        if not is_several or (isinstance(target, Tensor) and target.ndim == 0):
            return token(target)
        return tuple(map(token, target))
    except TypeError as error:
        raise InvalidInput(
            "Targets are token ids or texts of one token, one or one per prompt; got "
            f"{reprlib.repr(target)}."
        ) from error
