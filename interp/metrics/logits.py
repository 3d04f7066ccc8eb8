"""What do logits say? The losses, the logits at a position, those of a target."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import InvalidInput
from interp.model.batch import Batch, column_of, tokens_first

Targets = int | tuple[int, ...]
"""A token id, or one a prompt."""


def next_token_losses(
    logits: Float[Tensor, "batch pos vocab"], batch: Batch
) -> tuple[Float[Tensor, "batch prediction"], Bool[Tensor, "batch prediction"]]:
    """−log p of each next token in nats (0 at padding), and where there is one."""
    targets = _next_real(batch)[:, :-1]
    losses = -logits[:, :-1].log_softmax(-1).gather(-1, targets[..., None]).squeeze(-1)
    if batch.real is None:
        return losses, torch.ones_like(losses, dtype=torch.bool)
    lengths = batch.real.sum(-1, keepdim=True)
    counted = (batch.real & (batch.real.cumsum(-1) < lengths))[:, :-1]
    return losses.where(counted, 0.0), counted


def _next_real(batch: Batch) -> Int[Tensor, "batch pos"]:
    """The token that follows each token among the real ones of its row, whatever is between."""
    if batch.real is None:
        return batch.ids.roll(-1, dims=1)
    order = tokens_first(batch.real)
    following = batch.ids.gather(-1, order).roll(-1, dims=1)
    return torch.zeros_like(batch.ids).scatter_(1, order, following)


def widened(logits: Tensor) -> Tensor:
    """Logits in a type that is precise enough to measure: half precision as float32."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def at_position(
    x: Float[Tensor, "batch pos ..."], batch: Batch, pos: int | None
) -> Float[Tensor, "batch ..."]:
    """``x`` at position ``pos`` among each row's real tokens.

    Raises:
        InvalidInput: a row is too short to have that position.
    """
    columns = required_columns(batch, -1 if pos is None else pos)
    return x[torch.arange(x.shape[0], device=x.device), columns]


def required_columns(batch: Batch, pos: int) -> Int[Tensor, " batch"]:
    """The column of position ``pos`` in each row.

    Raises:
        InvalidInput: a row is too short to have that position.
    """
    columns, lacking = column_of(batch.is_real, pos)
    if bool(lacking.any()):
        row = int(lacking.nonzero()[0])
        length = int(batch.is_real[row].sum())
        raise InvalidInput(f"Position {pos} of prompt {row}, which has {length} tokens.")
    return columns


def picked(x: Float[Tensor, "batch vocab"], target: Targets) -> Float[Tensor, " batch"]:
    """``x`` in the column of each row's target.

    Raises:
        InvalidInput: a target outside the vocabulary, or not one for each row.
    """
    return x.gather(-1, per_row(x, target)[:, None]).squeeze(-1)


def per_row(x: Float[Tensor, "batch vocab"], target: Targets) -> Int[Tensor, " batch"]:
    """Each row's target.

    Raises:
        InvalidInput: a target outside the vocabulary, or not one for each row.
    """
    targets = several(target)
    outside = [t for t in targets if not 0 <= t < x.shape[1]]
    if outside:
        raise InvalidInput(f"Target {outside[0]} is outside the vocabulary 0..{x.shape[1] - 1}.")
    if not isinstance(target, int) and len(targets) != x.shape[0]:
        raise InvalidInput(f"{len(targets)} targets were given for {x.shape[0]} prompts.")
    return torch.tensor(targets, device=x.device).expand(x.shape[0])


def several(target: Targets) -> tuple[int, ...]:
    """One or several targets as several."""
    return (target,) if isinstance(target, int) else target
