"""Massive activations of the stream: |x| > 100 and > 1000 times the median of their text.

(Sun et al. 2024, "Massive Activations in Large Language Models".) They stand in few dimensions,
mostly at the first token, and attention to that token often depends on them.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.metrics import at_least_float32

LEAST, TIMES = 100.0, 1000.0
Stream = Float[Tensor, "prompt pos d_model"]


def massive_in(x: Stream, real: Bool[Tensor, "prompt pos"]) -> Bool[Tensor, "prompt pos d_model"]:
    """Which activations of a layer's stream are massive."""
    size = at_least_float32(x).abs()
    large = (size > LEAST) & real[..., None]
    for row in large.flatten(1).any(-1).nonzero().flatten().tolist():  # medians take time
        large[row] &= size[row] > TIMES * size[row, real[row]].median()
    return large


def count_massive(
    counts: Float[Tensor, "part d_model"],
    x: Stream,
    real: Bool[Tensor, "prompt pos"],
    ids: Int[Tensor, "prompt pos"],
) -> None:
    """Add a layer's massive activations to the counts of :class:`Totals`."""
    if float(x.abs().max()) <= LEAST:
        return
    massive = massive_in(x, real)
    counts[0] += massive.sum((0, 1)).cpu()
    counts[1] += massive[:, 0].sum(0).cpu()
    size = at_least_float32(x).abs().where(massive, 0).flatten(0, 1)
    largest, place = (tensor.cpu() for tensor in size.max(0))
    larger = largest.double() > counts[2]
    counts[2] = counts[2].where(~larger, largest.double())
    counts[3] = counts[3].where(~larger, ids.flatten().cpu()[place].double())


def without_massive(x: Stream) -> Stream:
    """The stream with its massive activations set to zero."""
    return x.where(~massive_in(x, torch.ones_like(x[..., 0], dtype=torch.bool)), 0)
