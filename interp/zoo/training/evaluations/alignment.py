"""Where does a translator look while it writes? At what it is about to say.

Alignment of a head with a part of the source: the attention that part gets from the positions
where it is about to be written, averaged over them (Bahdanau, Cho and Bengio 2015, "Neural Machine
Translation by Jointly Learning to Align and Translate", figure 3, in one number).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.execution.run import run
from interp.transformer import Transformer

FIELDS = ("year", "month", "day")
WRITTEN = {"year": slice(0, 4), "month": slice(5, 7), "day": slice(8, 10)}
"""The decoder positions after which the digits of each part stand in ``<start>2021-03-03``."""


@dataclass(frozen=True, eq=False)
class Alignment:
    """The attention that each part of a date gets where it is written.

    Attributes:
        scores: mean attention, by part.
        even: what a head would score that attends to all tokens evenly.
    """

    scores: dict[str, Float[Tensor, "layer head"]]
    even: dict[str, float]

    def best(self, field: str) -> tuple[str, float, float]:
        """The head that aligns a part best, its score, and that of even attention."""
        scores = self.scores[field]
        layer, head = divmod(int(scores.argmax()), scores.shape[1])
        return f"L{layer}H{head}", scores.max().item(), self.even[field]


def alignment(
    model: Transformer,
    sources: Int[Tensor, "batch source"],
    targets: Int[Tensor, "batch target"],
    fields: Int[Tensor, "batch source"],
) -> Alignment:
    """Score the cross-attention heads of a model of dates.

    Args:
        model: an encoder–decoder.
        sources: the texts, padded.
        targets: start, date, end.
        fields: which of ``FIELDS`` each source token tells, by number; −1 if none.
    """
    layers = range(len(model.stacks[-1].blocks))
    cache = run(
        model, sources, targets, record=[("cross_pattern", layer) for layer in layers]
    ).cache
    patterns = torch.stack([cache["cross_pattern", layer] for layer in layers])
    real = (sources >= 0).sum(-1)
    scores: dict[str, Tensor] = {}
    even: dict[str, float] = {}
    for number, field in enumerate(FIELDS):
        told = fields == number
        given = patterns[..., WRITTEN[field], :] * told[:, None, None]
        scores[field] = given.sum(-1).mean((1, 3))
        even[field] = (told.sum(-1) / real).mean().item()
    return Alignment(scores, even)
