"""Encodes the patterns of all heads as bytes, where 255 is a weight of 1.

A byte u stands for a weight A with |A − u/255| ≤ 1/510. Beyond :data:`MOST_BYTES`, patterns are
sent at a reduced size, and only those of one layer at full size.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from analyses import AttentionPatterns
from analyses.results import encoded

MOST_BYTES = 2**21
"""Limit for the plain and for the value-weighted patterns each."""
SMALL = 48
"""Largest number of rows and columns of a reduced pattern."""


def patterns_sent(result: AttentionPatterns, layer: int, most: int = MOST_BYTES) -> Any:  # noqa: ANN401 - JSON
    """All patterns in the form that the widget's view "heads" reads.

    Args:
        result: the patterns.
        layer: the layer whose patterns are sent at full size if all layers would be too large.
        most: total size in bytes up to which all layers are sent at full size.
    """
    if sum(own.numel() for own in result.patterns) <= most:
        return [encoded(as_bytes(own)) for own in result.patterns]
    small = torch.stack([as_bytes(averaged(own)) for own in result.patterns])
    whole = encoded(as_bytes(result.patterns[layer]))
    return {"thumbnails": encoded(small), "layer": {"index": layer, "patterns": whole}}


def as_bytes(weights: Tensor) -> Tensor:
    """Weights from 0 to 1, rounded to the nearest of 256 steps."""
    return (weights.double() * 255).round().to(torch.uint8)


def averaged(pattern: Tensor) -> Tensor:
    """A pattern reduced to at most ``SMALL`` rows and columns, by means over its cells."""
    rows, columns = (min(size, SMALL) for size in pattern.shape[-2:])
    return adaptive_avg_pool2d(pattern[:, None], (rows, columns))[:, 0]
