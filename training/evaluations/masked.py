"""Accuracy of an encoder on masked tokens, and of always predicting the most frequent token.

Masking follows Devlin et al. 2019, "BERT", §3.1: 15 % of the tokens are to be predicted; of these,
80 % are replaced by the mask token, 10 % by a random token, and 10 % are left unchanged.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from interp.transformer import Transformer

SHARE, MASKED, RANDOM = 0.15, 0.8, 0.1


@dataclass(frozen=True, eq=False)
class MaskedBatch:
    """Rows with some tokens to be predicted.

    Attributes:
        inputs: the tokens that the model reads.
        tokens: the original tokens.
        predicted: True for the tokens to be predicted.
    """

    inputs: Int[Tensor, "batch pos"]
    tokens: Int[Tensor, "batch pos"]
    predicted: Bool[Tensor, "batch pos"]


def mask_tokens(
    tokens: Int[Tensor, "batch pos"], mask: int, d_vocab: int, generator: torch.Generator
) -> MaskedBatch:
    """Mask some tokens of each row, never the first.

    Args:
        tokens: rows that begin with BOS.
        mask: id of the mask token.
        d_vocab: number of ids from which random tokens are drawn.
        generator: generator of the positions and the random tokens.
    """
    predicted = torch.rand(tokens.shape, generator=generator) < SHARE
    predicted[:, 0] = False
    draw = torch.rand(tokens.shape, generator=generator)
    other = torch.randint(d_vocab, tokens.shape, generator=generator)
    inputs = tokens.where(~(predicted & (draw < MASKED)), mask)
    inputs = inputs.where(~(predicted & (draw >= 1 - RANDOM)), other)
    return MaskedBatch(inputs, tokens, predicted)


def masked_loss(model: Transformer, batch: MaskedBatch) -> Float[Tensor, ""]:
    """Mean loss in nats on the tokens to be predicted."""
    logits = model(batch.inputs.to(model.device))
    predicted = batch.predicted.to(model.device)
    return cross_entropy(logits[predicted], batch.tokens.to(model.device)[predicted])


def masked_accuracy(model: Transformer, batch: MaskedBatch, rows: int = 32) -> float:
    """The share of the tokens to be predicted that have the highest logit."""
    correct = 0
    for first in range(0, len(batch.inputs), rows):
        part = slice(first, first + rows)
        with torch.no_grad():
            likeliest = model(batch.inputs[part]).argmax(-1)
        correct += int(((likeliest == batch.tokens[part]) & batch.predicted[part]).sum())
    return correct / int(batch.predicted.sum())


def most_frequent_accuracy(train: Int[Tensor, " token"], batch: MaskedBatch) -> float:
    """The accuracy of always predicting the most frequent token of ``train``."""
    most_frequent = torch.bincount(train.long()).argmax()
    return (batch.tokens[batch.predicted] == most_frequent).double().mean().item()
