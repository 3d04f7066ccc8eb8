"""Metrics: one number a prompt, computed from the logits.

A metric is data: it says which positions and vocabulary columns it reads, so that nothing else
need be computed. Logarithms are natural: losses and divergences are in nats. A plain function
of the logits ``[batch pos vocab]`` is a metric too, and reads all of them.
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
from interp.metrics.logits import (
    Targets,
    at_least_float32,
    batch_loss,
    next_token_losses,
    required_columns,
)
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
    "at_least_float32",
    "batch_loss",
    "check_values",
    "kl",
    "logit",
    "logit_diff",
    "loss",
    "measure",
    "next_token_losses",
    "prob",
    "required_columns",
]

MetricLike = Callable[[Tensor], Tensor]
TargetLike = int | Sequence[int] | Tensor


def loss() -> Loss:
    """Next-token cross-entropy in nats, mean over each prompt."""
    return Loss()


def logit(target: TargetLike, pos: int = -1) -> Logit:
    """The logit of ``target`` (a token id, or one a prompt) at a position."""
    return Logit(pos, _targets(target))


def logit_diff(target: TargetLike, distractor: TargetLike, pos: int = -1) -> LogitDiff:
    """The logit of ``target`` minus that of ``distractor`` at a position."""
    return LogitDiff(pos, _targets(target), _targets(distractor))


def prob(target: TargetLike, pos: int = -1) -> Probability:
    """The probability of ``target`` at a position."""
    return Probability(pos, _targets(target))


def accuracy(target: TargetLike, pos: int = -1) -> Accuracy:
    """1 where ``target`` has the highest logit at a position, else 0."""
    return Accuracy(pos, _targets(target))


def kl(reference: Float[Tensor, "batch pos vocab"], pos: int | None = None) -> KL | KLAt:
    """KL(reference ‖ model) in nats, at a position, or the mean over all positions."""
    data = TensorData(reference.detach())
    return KL(None, data) if pos is None else KLAt(pos, data)


def measure(
    metric: Metric | MetricLike, logits: Float[Tensor, "batch pos vocab"], batch: Batch
) -> Tensor:
    """``metric`` of ``logits``: one number a row, or the scalar that a plain function returns.

    Half precision is measured in float32.

    Raises:
        InvalidInput: a result of another shape or type, or NaN.
    """
    logits = at_least_float32(logits)
    if not callable(metric):
        raise InvalidInput(f"A metric is one of interp.metrics or a function, not {metric!r}.")
    returned = metric(logits, batch) if isinstance(metric, Metric) else metric(logits)
    return check_values(returned, logits.shape[0])


def check_values(values: object, n: int) -> Tensor:
    """``values``, if they are a valid result of a metric on ``n`` prompts; see :func:`measure`."""
    if not isinstance(values, Tensor):
        raise InvalidInput(f"A metric returns a tensor; this one returned {type(values).__name__}.")
    if values.shape not in ((), (n,)):
        raise InvalidInput(
            f"A metric returns one number a prompt, [{n}]; this one returned shape "
            f"{tuple(values.shape)}."
        )
    if bool(values.isnan().any()):
        raise InvalidInput(
            "The metric is NaN: the logits hold NaN or infinity. Look for non-finite weights or "
            "edits; in half precision, try float32."
        )
    return values


def _targets(target: Any) -> Targets:  # noqa: ANN401 - checked here
    try:
        if not isinstance(target, Iterable) or (isinstance(target, Tensor) and target.ndim == 0):
            return index(target)
        return tuple(index(one) for one in target)
    except TypeError as error:
        raise InvalidInput(
            f"Targets are token ids, one or one a prompt; got {target!r}."
        ) from error
