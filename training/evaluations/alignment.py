"""Alignment of cross-attention heads with a field of a date (year, month or day).

Alignment is the attention of the decoder positions that predict the field's digits to the field's
source tokens, averaged over these positions and the batch. It summarizes figure 3 of Bahdanau,
Cho and Bengio 2015, "Neural Machine Translation by Jointly Learning to Align and Translate".
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.execution import run
from interp.transformer import Transformer

FIELDS = ("year", "month", "day")
PREDICTING = {"year": slice(0, 4), "month": slice(5, 7), "day": slice(8, 10)}
"""The decoder positions that predict the digits of each field, in ``<start>2021-03-03``."""


@dataclass(frozen=True, eq=False)
class Alignment:
    """The alignment of each head with each field.

    Attributes:
        scores: alignment in [0, 1], by field.
        uniform: alignment of uniform attention over the source, by field.
    """

    scores: dict[str, Float[Tensor, "layer head"]]
    uniform: dict[str, float]

    def best(self, field: str) -> tuple[str, float, float]:
        """The best-aligned head, its alignment, and the alignment of uniform attention."""
        scores = self.scores[field]
        layer, head = divmod(int(scores.argmax()), scores.shape[1])
        return f"L{layer}H{head}", scores.max().item(), self.uniform[field]


def alignment(
    model: Transformer,
    sources: Int[Tensor, "batch source"],
    targets: Int[Tensor, "batch target"],
    fields: Int[Tensor, "batch source"],
) -> Alignment:
    """The alignment of every cross-attention head of a model that reads dates.

    Args:
        model: an encoder–decoder.
        sources: ids of the source texts, padded.
        targets: ids of start token, ISO date, end token.
        fields: index in ``FIELDS`` of each source token's field; −1 for no field.
    """
    layers = range(len(model.stacks[-1].blocks))
    cache = run(
        model, sources, targets, record=[("cross_pattern", layer) for layer in layers]
    ).cache
    patterns = torch.stack([cache["cross_pattern", layer] for layer in layers])
    real = (sources >= 0).sum(-1)
    scores: dict[str, Tensor] = {}
    uniform: dict[str, float] = {}
    for number, field in enumerate(FIELDS):
        in_field = fields == number
        attention = patterns[..., PREDICTING[field], :] * in_field[:, None, None]
        scores[field] = attention.sum(-1).mean((1, 3))
        uniform[field] = (in_field.sum(-1) / real).mean().item()
    return Alignment(scores, uniform)
