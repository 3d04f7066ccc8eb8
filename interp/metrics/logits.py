"""Losses of tokens, and logits selected by position and by target."""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import InvalidInput, shorten
from interp.model import Batch, column_of, tokens_first

Targets = int | str | tuple[int | str, ...]
"""A token, or one per prompt: its id, or a text that the model's tokenizer reads as one token."""
Position = int | Literal["mask"] | None
"""An index among a row's real tokens, ``"mask"`` for its mask token, or ``None`` for the default
(see :func:`columns_read`)."""

AT_A_TIME = 2**26
"""Maximum number of logits that are formed at a time."""


def next_token_losses(
    logits: Float[Tensor, "batch pos vocab"], batch: Batch
) -> tuple[Float[Tensor, "batch prediction"], Bool[Tensor, "batch prediction"]]:
    """−log p of each next token in nats (0 where there is none), and the mask of predictions."""
    targets = _next_token_ids(batch)[:, :-1]
    # Sliced afterwards, because the kernel would first copy a slice.
    losses = -logits.log_softmax(-1)[:, :-1].gather(-1, targets[..., None]).squeeze(-1)
    if batch.real is None:
        return losses, torch.ones_like(losses, dtype=torch.bool)
    lengths = batch.real.sum(-1, keepdim=True)
    counted = (batch.real & (batch.real.cumsum(-1) < lengths))[:, :-1]
    return losses.where(counted, 0.0), counted


def batch_loss(logits: Float[Tensor, "batch pos vocab"], batch: Batch) -> Float[Tensor, ""]:
    """Next-token cross-entropy in nats, mean over all predictions of the batch.

    Raises:
        InvalidInput: every prompt is a single token.
    """
    losses, counted = next_token_losses(logits, batch)
    if not bool(counted.any()):
        raise InvalidInput("Every prompt is a single token: there is no next token to predict.")
    return losses.sum() / counted.sum()


def _next_token_ids(batch: Batch) -> Int[Tensor, "batch pos"]:
    """The id of the next real token after each token of a row, skipping padding between them."""
    if batch.real is None:
        return batch.ids.roll(-1, dims=1)
    order = tokens_first(batch.real)
    following = batch.ids.gather(-1, order).roll(-1, dims=1)
    return torch.zeros_like(batch.ids).scatter_(1, order, following)


def at_least_float32(logits: Tensor) -> Tensor:
    """Logits in float32 if they are in half precision, else unchanged."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def parts_of_rows(
    shape: Sequence[int], device: torch.device, most: int | None = None
) -> tuple[Int[Tensor, " row"], ...]:
    """The rows of logits, split into parts that can be formed at a time.

    Args:
        shape: shape of the logits, ``[batch pos vocab]``.
        device: device of the row indices.
        most: maximum number of rows in a part; ``None`` for no limit.
    """
    n, width, vocab = shape
    rows = min(AT_A_TIME // (width * vocab), most or n)
    return torch.arange(n, device=device).split(max(1, rows))


def relative_rounding(dtype: torch.dtype) -> float:
    """The rounding error that a forward may have, relative to its largest value.

    100 units in the last place; half a unit in half precision, in which sums are formed in float32.
    """
    half = dtype in (torch.float16, torch.bfloat16)
    return (0.5 if half else 100) * torch.finfo(dtype).eps


def at_position(
    x: Float[Tensor, "batch pos ..."], batch: Batch, pos: Position
) -> Float[Tensor, "batch ..."]:
    """``x`` at one position of each row; see :func:`columns_read`."""
    return x[torch.arange(x.shape[0], device=x.device), columns_read(batch, pos)]


def columns_read(batch: Batch, pos: Position) -> Int[Tensor, " batch"]:
    """The column that a metric at ``pos`` reads in each row.

    Args:
        batch: checked tokens.
        pos: an index among each row's real tokens; ``"mask"`` for the position of its only mask
            token; ``None`` for the position of the mask token if a row of an encoder has one, and
            otherwise the last position.

    Raises:
        InvalidInput: a row is too short to have this position, or has several mask tokens, or
            none although ``pos`` is ``"mask"``.
    """
    if isinstance(pos, int):
        return required_columns(batch, pos)
    last = required_columns(batch, -1)
    if batch.masked is None:
        if pos == "mask":
            raise InvalidInput(NO_MASK_TOKEN)
        return last
    counts = batch.masked.sum(-1)
    wrong = (counts != 1) if pos == "mask" else (counts > 1)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise InvalidInput(
            f'Prompt {row} holds {int(counts[row])} mask tokens; pos="mask", the default for '
            "prompts with a mask token, reads exactly one. Give pos= as a number, or measure "
            "masked_loss(tokens)."
        )
    return batch.masked.int().argmax(-1).where(counts == 1, last)


def masked_losses(
    logits: Float[Tensor, "batch pos vocab"], tokens: Int[Tensor, "row column"], batch: Batch
) -> tuple[Float[Tensor, "batch pos"], Bool[Tensor, "batch pos"]]:
    """−log p of the true token at each mask token in nats (0 elsewhere), and the mask of these.

    Raises:
        InvalidInput: the model has no mask token, a row contains none, or ``tokens`` has another
            shape or ids outside the vocabulary.
    """
    if batch.masked is None:
        raise InvalidInput(NO_MASK_TOKEN)
    if tokens.shape != batch.ids.shape:
        raise InvalidInput(
            f"masked_loss takes the true token of each position, {tuple(batch.ids.shape)}; got "
            f"{tuple(tokens.shape)}."
        )
    without = ~batch.masked.any(-1)
    if bool(without.any()):
        raise InvalidInput(f"Prompt {int(without.nonzero()[0])} holds no mask token.")
    targets = tokens.to(batch.ids.device).where(batch.masked, 0)
    if bool(((targets < 0) | (targets >= logits.shape[-1])).any()):
        raise InvalidInput(
            f"masked_loss: a true token is outside the vocabulary 0..{logits.shape[-1] - 1}."
        )
    losses = -logits.log_softmax(-1).gather(-1, targets[..., None]).squeeze(-1)
    return losses.where(batch.masked, 0.0), batch.masked


NO_MASK_TOKEN = (
    "This model is not an encoder with a mask token (config.tokens.mask); give the position of the "
    "prediction as a number, as in pos=-1."
)


def required_columns(batch: Batch, pos: int) -> Int[Tensor, " batch"]:
    """The column of position ``pos`` in each row.

    Raises:
        InvalidInput: a row is too short to have this position.
    """
    columns, lacking = column_of(batch.is_real, pos)
    if bool(lacking.any()):
        row = int(lacking.nonzero()[0])
        length = int(batch.is_real[row].sum())
        raise InvalidInput(
            f"There is no position {pos} in prompt {row}, which has {length} tokens."
        )
    return columns


def gather_targets(x: Float[Tensor, "batch vocab"], target: Targets) -> Float[Tensor, " batch"]:
    """``x[i, target_i]`` for each row i.

    Raises:
        InvalidInput: a target is outside the vocabulary, or there is not one for each row.
    """
    return x.gather(-1, row_targets(x, target)[:, None]).squeeze(-1)


def row_targets(x: Float[Tensor, "batch vocab"], target: Targets) -> Int[Tensor, " batch"]:
    """The target of each row, checked against the vocabulary.

    Raises:
        InvalidInput: a target is outside the vocabulary, or there is not one for each row.
    """
    targets = as_tuple(target)
    outside = [t for t in targets if not 0 <= t < x.shape[1]]
    if outside:
        raise InvalidInput(f"Target {outside[0]} is outside the vocabulary 0..{x.shape[1] - 1}.")
    if isinstance(target, tuple) and len(targets) != x.shape[0]:
        raise InvalidInput(f"{len(targets)} targets were given for {x.shape[0]} prompts.")
    return torch.tensor(targets, device=x.device).expand(x.shape[0])


def as_tuple(target: Targets) -> tuple[int, ...]:
    """The ids of one target or several, as a tuple.

    Raises:
        InvalidInput: a target is a text, whose id only a model's tokenizer knows.
    """
    targets = target if isinstance(target, tuple) else (target,)
    ids = tuple(target for target in targets if isinstance(target, int))
    if len(ids) < len(targets):
        text = next(target for target in targets if isinstance(target, str))
        raise InvalidInput(
            f"The target {shorten(text)} is a text: metric.with_ids(model.to_single_token) is the "
            "metric with its id."
        )
    return ids
