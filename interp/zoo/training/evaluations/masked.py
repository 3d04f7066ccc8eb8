"""How often does an encoder know a word that was hidden from it? Against the commonest word.

The recipe of Devlin et al. 2019, "BERT", §3.1: of the tokens, 15 % are to be foretold; of these
80 % are replaced by the mask, 10 % by any token, and 10 % are left as they are.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from interp.transformer import Transformer

SHARE, MASKED, RANDOM = 0.15, 0.8, 0.1


@dataclass(frozen=True, eq=False)
class Hidden:
    """Rows of which some tokens are hidden.

    Attributes:
        seen: what the model reads.
        tokens: what stood there.
        where: the tokens to be foretold.
    """

    seen: Int[Tensor, "batch pos"]
    tokens: Int[Tensor, "batch pos"]
    where: Bool[Tensor, "batch pos"]


def hide(
    tokens: Int[Tensor, "batch pos"], mask: int, d_vocab: int, generator: torch.Generator
) -> Hidden:
    """Hide some tokens of each row, never the first.

    Args:
        tokens: rows that begin with BOS.
        mask: the token that stands for a hidden one.
        d_vocab: random tokens are below it.
        generator: draws which.
    """
    where = torch.rand(tokens.shape, generator=generator) < SHARE
    where[:, 0] = False
    fate = torch.rand(tokens.shape, generator=generator)
    other = torch.randint(d_vocab, tokens.shape, generator=generator)
    seen = tokens.where(~(where & (fate < MASKED)), mask)
    seen = seen.where(~(where & (fate >= 1 - RANDOM)), other)
    return Hidden(seen, tokens, where)


def masked_loss(model: Transformer, hidden: Hidden) -> Float[Tensor, ""]:
    """Mean loss in nats on the tokens to be foretold."""
    logits = model(hidden.seen.to(model.device))
    where = hidden.where.to(model.device)
    return cross_entropy(logits[where], hidden.tokens.to(model.device)[where])


def masked_accuracy(model: Transformer, hidden: Hidden, rows: int = 32) -> float:
    """The share of the tokens to be foretold that are the likeliest."""
    right = 0
    for first in range(0, len(hidden.seen), rows):
        part = slice(first, first + rows)
        with torch.no_grad():
            said = model(hidden.seen[part]).argmax(-1)
        right += int(((said == hidden.tokens[part]) & hidden.where[part]).sum())
    return right / int(hidden.where.sum())


def commonest_accuracy(train: Int[Tensor, " token"], hidden: Hidden) -> float:
    """The share that is right by always saying the commonest token of ``train``."""
    commonest = torch.bincount(train.long()).argmax()
    return (hidden.tokens[hidden.where] == commonest).double().mean().item()
