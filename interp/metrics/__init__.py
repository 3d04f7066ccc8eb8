"""How well did the model do? A number a prompt, from the logits.

A metric is data: it says which positions and vocabulary columns it reads, so that nothing else
need be computed. Logarithms are natural: losses and divergences are in nats. A plain function
of the logits ``[batch pos vocab]`` serves as a metric too, and reads all.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import Any

from jaxtyping import Float
from torch import Tensor

from interp.errors import InvalidInput
from interp.metrics.kinds import (
    KL,
    Accuracy,
    AtPosition,
    KLAt,
    Logit,
    LogitDiff,
    Loss,
    Metric,
    Probability,
)
from interp.metrics.logits import Targets, next_token_losses, required_columns, widened
from interp.model.batch import Batch
from interp.tensor_data import TensorData

__all__ = [
    "KL",
    "Accuracy",
    "AtPosition",
    "KLAt",
    "Logit",
    "LogitDiff",
    "Loss",
    "Metric",
    "MetricLike",
    "Probability",
    "accuracy",
    "checked",
    "kl",
    "logit",
    "logit_diff",
    "loss",
    "measure",
    "next_token_losses",
    "prob",
    "required_columns",
    "widened",
]

MetricLike = Callable[[Tensor], Tensor]
TargetLike = int | Sequence[int] | Tensor


def loss() -> Loss:
    """Next-token cross-entropy in nats, mean over each prompt."""
    return Loss()


def logit(target: TargetLike, pos: int = -1) -> Logit:
    """The logit of ``target`` (an id, or one a prompt) at a position."""
    return Logit(pos, _targets(target))


def logit_diff(target: TargetLike, distractor: TargetLike, pos: int = -1) -> LogitDiff:
    """The logit of ``target`` less that of ``distractor`` at a position."""
    return LogitDiff(pos, _targets(target), _targets(distractor))


def prob(target: TargetLike, pos: int = -1) -> Probability:
    """The probability of ``target`` at a position."""
    return Probability(pos, _targets(target))


def accuracy(target: TargetLike, pos: int = -1) -> Accuracy:
    """Whether ``target`` is the likeliest token at a position."""
    return Accuracy(pos, _targets(target))


def kl(reference: Float[Tensor, "batch pos vocab"], pos: int | None = None) -> KL | KLAt:
    """KL(reference ‖ model) in nats, at a position or averaged over all."""
    return KL(None, TensorData(reference)) if pos is None else KLAt(pos, TensorData(reference))


def measure(
    metric: Metric | MetricLike, logits: Float[Tensor, "batch pos vocab"], batch: Batch
) -> Tensor:
    """What ``metric`` says of ``logits``: one number a row (a plain function may give a scalar).

    Raises:
        InvalidInput: a result that is neither, or that is not a number.
    """
    logits = widened(logits)
    if not callable(metric):
        raise InvalidInput(f"A metric is one of interp.metrics or a function, not {metric!r}.")
    return checked(_called(metric, logits, batch), logits.shape[0])


def checked(values: object, n: int) -> Tensor:
    """``values``, if they are what a metric may say of ``n`` prompts; see :func:`measure`."""
    if not isinstance(values, Tensor):
        raise InvalidInput(f"A metric gives a tensor; this one gave {type(values).__name__}.")
    if values.shape not in ((), (n,)):
        raise InvalidInput(
            f"A metric gives one number a prompt, [{n}]; this one gave shape {tuple(values.shape)}."
        )
    if bool(values.isnan().any()):
        raise InvalidInput(
            "The metric is NaN: the logits hold NaN or infinity. Look for non-finite weights or "
            "edits; in half precision, try float32."
        )
    return values


def _called(metric: Metric | MetricLike, logits: Tensor, batch: Batch) -> object:
    return metric(logits, batch) if isinstance(metric, Metric) else metric(logits)


def _targets(target: Any) -> Targets:  # noqa: ANN401 - checked here
    try:
        if not isinstance(target, Iterable) or (isinstance(target, Tensor) and target.ndim == 0):
            return index(target)
        return tuple(index(one) for one in target)
    except TypeError as error:
        raise InvalidInput(
            f"Targets are token ids, one or one a prompt; got {target!r}."
        ) from error
