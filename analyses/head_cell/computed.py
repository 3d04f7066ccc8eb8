"""The numbers of one cell of a head, from a recorded run."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.attribution import Head, PromptScores
from analyses.methods.circuits import Side, TokenCircuits
from analyses.methods.heads import AttentionName
from interp import Transformer
from interp.cache import Cache
from interp.errors import InvalidInput
from interp.metrics import at_least_float32
from interp.model import Batch, ImageInput
from interp.points import Point


def row_of(
    head: Head, cache: Cache, scores: PromptScores, query: int, point: Point
) -> Float[Tensor, " key"]:
    """The recorded row of a query, without padding."""
    matrix = cache[head.place(point)][0, head.index]
    return at_least_float32(matrix[scores.queries[query]][scores.keys])


def parts_of(
    head: Head, cache: Cache, scores: PromptScores, query: int, key: int
) -> Float[Tensor, " part"]:
    """The parts of the score: content, rotation, soft-cap and bias of positions."""
    attn = head.attn
    q, k = (cache[place] for place in head.places_of_scores)
    normed = (
        at_least_float32(attn.q_norm(q))[0, scores.queries[query], head.index],
        at_least_float32(attn.k_norm(k))[0, scores.keys[key], head.kv_head],
    )
    content = (normed[0] * normed[1]).sum() / attn.divisor
    score = scores.scores[query, key]
    bias = scores.bias[query, key]
    return torch.stack([content, score - content, attn.soft_cap(score) - score, bias])


def tokens_of(
    head: Head,
    model: Transformer,
    z: Float[Tensor, " d_head"],
    attention: AttentionName | None,
    top: int,
) -> tuple[Int[Tensor, " token"], tuple[str, ...], Float[Tensor, " token"]]:
    """The tokens that z raises most, then those that it lowers most; none without unembedding."""
    try:
        circuits = TokenCircuits.of(model, head.layer, head.index, attention)
        logits = circuits.logits((z @ circuits.output().to(z))[None])[0]
    except InvalidInput:
        return torch.empty(0, dtype=torch.long), (), torch.empty(0)
    order = logits.argsort(descending=True, stable=True)
    n = min(top, len(order) // 2)
    ids = torch.cat([order[:n], order[len(order) - n :]]).cpu()
    return ids, Side.of_logits(model).labels(ids), logits.cpu()[ids]


def labels_of(model: Transformer, stack: int, batch: Batch) -> tuple[str, ...]:
    """The label of each token, or the number of each patch of an image."""
    if isinstance(model.stacks[stack].input, ImageInput):
        return tuple(map(str, range(int(batch.is_real[0].sum()))))
    return tuple(model.to_labels(batch.ids[0, batch.is_real[0]]))
