"""Computing a metric, or a plain function, from the logits of a batch."""

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InvalidInput, NotANumber, shorten
from interp.metrics.metric import Metric, at_least_float32, parts_of_rows
from interp.metrics.position import AtPosition, at_position
from interp.model import Batch, Network, unembedding_of

_Metric = TypeVar("_Metric")

ROWS = 64
"""Maximum number of prompts per forward."""
MetricLike = Callable[[Tensor], Tensor] | Callable[[Tensor, Batch], Tensor]
"""A plain function of the logits, or of the logits and their batch."""


def measure(
    metric: Metric | MetricLike, logits: Float[Tensor, "batch pos vocab"], batch: Batch
) -> Tensor:
    """``metric`` of ``logits``: one number per row, or the scalar that a plain function returns.

    Logits in half precision are converted to float32. A plain function with two required parameters
    gets ``(logits, batch)``, where ``batch.is_real`` marks the positions of tokens. A function with
    one parameter only gets the logits, with NaN at padding, so that anything computed from padding
    is NaN and is refused. (``argmax`` and comparisons of NaN do not return NaN: a function that
    uses them should take the batch.)

    Raises:
        InvalidInput: the result has another shape or type, or is NaN.
    """
    return _refuse_nan(metric, measured(metric, at_least_float32(logits), batch), batch)


def measure_stream(
    metric: Metric | MetricLike, model: Network, x: Float[Tensor, "batch pos d_model"], batch: Batch
) -> Tensor:
    """``metric`` from the output of the final norm; computes only the logits that it reads.

    Raises:
        InvalidInput: as for :func:`measure`, or the model has no logits.
    """
    unembed = unembedding_of(model)
    metric = with_ids(metric, model)
    if not isinstance(metric, AtPosition):
        return measure(metric, unembed(x), batch)
    logits = unembed(at_position(x, batch, metric.pos)[:, None])[:, 0]
    values = metric.for_batch(batch).compute(at_least_float32(logits))
    return _refuse_nan(metric, check_values(values, len(x)), batch)


def with_ids(metric: _Metric, model: Network) -> _Metric:
    """``metric`` with the ids that targets given as texts have in the model's tokenizer.

    Raises:
        InvalidTokens: a text is not one token, or the model has no tokenizer.
    """
    return metric.with_ids(model.to_single_token) if isinstance(metric, Metric) else metric


def _refuse_nan(metric: Metric | MetricLike, values: Tensor, batch: Batch) -> Tensor:
    if bool(values.isnan().any()):
        raise NotANumber(f"The metric is NaN: {cause_of_nan(metric, batch)}")
    return values


@torch.no_grad()
def measure_prompts(
    metric: Metric, model: Network, batches: Sequence[Batch], tokens: Batch | None = None
) -> Float[Tensor, " prompt"]:
    """``metric`` of a model's logits, computed for some prompts at a time; in float64, on the CPU.

    Args:
        metric: a metric with one number per prompt.
        model: the model.
        batches: the prompts for each stack.
        tokens: the tokens that the metric reads; by default those of the last stack.

    Raises:
        InvalidInput: the model has no logits, or the metric is NaN.
    """
    unembedding_of(model)
    metric = metric.with_ids(model.to_single_token)
    read = batches[-1] if tokens is None else tokens
    n, values = len(read.ids), list[Tensor]()
    shape = (*read.ids.shape, model.config.n_logits)
    for rows in parts_of_rows(shape, read.ids.device, most=ROWS):
        logits = model(*(batch.rows(rows) for batch in batches))
        part_metric = metric.for_rows(rows.tolist(), n)
        values.append(measure(part_metric, logits, read.rows(rows)).cpu().double())
    return torch.cat(values)


def measured(
    metric: Metric | MetricLike, logits: Float[Tensor, "batch pos vocab"], batch: Batch
) -> Tensor:
    """``metric`` of logits that are not in half precision; the result may be NaN."""
    check_callable(metric)
    n = logits.shape[0]
    if isinstance(metric, Metric) or takes_batch(metric):
        return check_values(metric(logits, batch), n)  # pyright: ignore[reportCallIssue] - asked
    if batch.real is not None:
        logits = logits.masked_fill(~batch.real[..., None], torch.nan)
    return check_values(metric(logits), n)  # pyright: ignore[reportCallIssue] - asked


def check_callable(metric: object) -> None:
    """Check that a metric is one of :mod:`interp.metrics` or a function.

    Raises:
        InvalidInput: it is neither.
    """
    if not callable(metric):
        raise InvalidInput(
            "A metric is one of interp.metrics, such as interp.metrics.loss(), or a function of "
            f"logits that returns a value per prompt, not {shorten(metric)}."
        )


def check_values(values: object, n: int) -> Tensor:
    """``values``, if they are a valid result of a metric on ``n`` prompts; they may be NaN."""
    if not isinstance(values, Tensor):
        raise InvalidInput(f"A metric returns a tensor; this one returned {type(values).__name__}.")
    if values.shape not in ((), (n,)):
        raise InvalidInput(
            f"A metric returns one number per prompt, [{n}]; this one returned shape "
            f"{tuple(values.shape)}."
        )
    if values.is_complex():
        raise InvalidInput(
            f"A metric returns real numbers; this one returned {values.dtype}. Take .real, .imag "
            "or .abs() of it."
        )
    return values


def name_and_unit(metric: Metric | MetricLike) -> tuple[str, str]:
    """Name and unit of a metric."""
    if isinstance(metric, Metric):
        return metric.name, metric.unit
    return getattr(metric, "__name__", "a function of the logits"), "unit of the function"


def takes_batch(fn: Callable[..., Tensor]) -> bool:
    """Whether a plain function has a second required parameter, which is then the batch."""
    try:
        parameters = signature(fn).parameters.values()
    except (TypeError, ValueError):  # some builtins have no signature
        return False
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.kind in positional and p.default is Parameter.empty]
    return len(required) > 1


def gets_nan_at_padding(metric: Metric | MetricLike, batch: Batch) -> bool:
    """Whether the metric is a function of the logits alone, and some positions are padding."""
    return batch.real is not None and not isinstance(metric, Metric) and not takes_batch(metric)


def cause_of_nan(metric: Metric | MetricLike, batch: Batch) -> str:
    """A message on why a metric may be NaN, and what to do."""
    if gets_nan_at_padding(metric, batch):
        return (
            "a function of the logits alone gets NaN at padding, and this one may read it. Take "
            "the batch as a second parameter, fn(logits, batch): batch.is_real says which "
            "positions are tokens. Or pad on the left, so that every row ends with a token."
        )
    return (
        "the logits hold NaN or infinity. Look for non-finite weights or edits; in half "
        "precision, try float32."
    )
