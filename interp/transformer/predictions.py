"""Predictions of a model: the loss of each next token, and the most probable tokens."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from interp.config import Config
from interp.errors import InvalidInput
from interp.io import Table
from interp.metrics import (
    Position,
    at_least_float32,
    batch_loss,
    columns_read,
    next_token_losses,
)
from interp.model import Batch


class Prediction(NamedTuple):
    """A token as a prediction.

    Attributes:
        rank: 1 for the most probable token.
        token: its label, in which spaces are visible.
        id: its id.
        probability: its probability.
        logit: its logit.
    """

    rank: int
    token: str
    id: int
    probability: float
    logit: float


@dataclass(frozen=True)
class Top:
    """The most probable tokens at one position.

    Attributes:
        rows: the tokens, most probable first.
        answer: the token that was requested by name, at any rank; ``None`` if none was.
    """

    rows: tuple[Prediction, ...]
    answer: Prediction | None

    def __repr__(self) -> str:
        return self._table().to_text()

    def _repr_html_(self) -> str:
        return self._table().to_html()

    def _table(self) -> Table:
        rows, answer = list(self.rows), self.answer
        title = f"The {len(rows)} most probable tokens"
        if answer is None:
            return Table(title, Prediction._fields, rows)
        title += f"; {answer.token} has rank {answer.rank}, p = {answer.probability:.4g}"
        return Table(title, Prediction._fields, rows if answer in rows else [*rows, answer])


def top_of(
    logits: Float[Tensor, " vocab"],
    k: int,
    answer: int | None,
    label: Callable[[int], str],
) -> Top:
    """The ``k`` largest logits, and that of ``answer``, with their probabilities.

    Raises:
        InvalidInput: a logit is NaN, or ``answer`` is outside the vocabulary.
    """
    n = len(logits)
    if bool(logits.isnan().any()):
        raise InvalidInput("The logits are NaN, so no token is the most probable one.")
    if answer is not None and not 0 <= answer < n:
        raise InvalidInput(f"answer={answer} is outside the vocabulary 0..{n - 1}.")
    logits = at_least_float32(logits)
    order, probabilities = logits.argsort(descending=True, stable=True), logits.softmax(-1)
    ranks = list(range(min(k, n)))
    if answer is not None:
        ranks.append(int((order == answer).nonzero()))
    ids = order[ranks].tolist()
    listed = zip(ranks, ids, probabilities[ids].tolist(), logits[ids].tolist(), strict=True)
    rows = [Prediction(rank + 1, label(id_), id_, p, logit) for rank, id_, p, logit in listed]
    if answer is None:
        return Top(tuple(rows), None)
    return Top(tuple(rows[:-1]), rows[-1])


def column_of_prompt(batch: Batch, pos: Position) -> int:
    """The column of a position (as metrics read it) in a batch of one prompt.

    Raises:
        InvalidInput: there are several prompts, or the prompt is too short.
    """
    if len(batch.ids) != 1:
        raise InvalidInput(f"One prompt was expected; got {len(batch.ids)}.")
    return int(columns_read(batch, pos))


def next_token_loss(
    config: Config, logits: Float[Tensor, "batch pos vocab"], batch: Batch, *, per_token: bool
) -> Float[Tensor, ""] | Float[Tensor, "batch prediction"]:
    """−log p of the next tokens in nats: the mean over the batch, or the loss of each.

    Raises:
        InvalidInput: the model predicts no next token, or there is none to average over.
    """
    if not config.is_causal or not config.unembeds or config.n_classes is not None:
        kind = (
            "has no logits of tokens"
            if config.is_causal
            else "is an encoder, or a decoder without its mask"
        )
        raise InvalidInput(f"This model {kind}: it predicts no next token, and has no such loss.")
    logits = at_least_float32(logits)
    if not per_token:
        return batch_loss(logits, batch)
    losses, counted = next_token_losses(logits, batch)
    return losses.where(counted, torch.nan)
