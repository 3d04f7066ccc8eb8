"""Patterns of all heads as bytes: 255 is a weight of 1.

A byte u stands for a weight A with |A − u/255| ≤ 1/510. Beyond :data:`MOST_BYTES`, patterns are
sent small, and those of one layer whole.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from analyses import AttentionPatterns
from analyses.payload import encoded

MOST_BYTES = 2**21
"""Of the plain and of the value-weighted patterns each."""
SMALL = 48
"""Rows and columns of a small pattern, at most."""


def patterns_sent(result: AttentionPatterns, layer: int, most: int = MOST_BYTES) -> Any:  # noqa: ANN401 - JSON
    """All patterns as the widget's view "heads" reads them.

    Args:
        result: the patterns.
        layer: whose patterns are sent whole if those of all layers are too many.
        most: bytes up to which all are sent whole.
    """
    if sum(own.numel() for own in result.patterns) <= most:
        return [encoded(as_bytes(own)) for own in result.patterns]
    small = torch.stack([as_bytes(averaged(own)) for own in result.patterns])
    whole = encoded(as_bytes(result.patterns[layer]))
    return {"thumbnails": encoded(small), "layer": {"index": layer, "patterns": whole}}


def as_bytes(weights: Tensor) -> Tensor:
    """Weights from 0 to 1 as the nearest of 256 steps."""
    return (weights.double() * 255).round().to(torch.uint8)


def averaged(pattern: Tensor) -> Tensor:
    """A pattern of at most ``SMALL`` rows and columns: means over the cells of each."""
    rows, columns = (min(size, SMALL) for size in pattern.shape[-2:])
    return adaptive_avg_pool2d(pattern[:, None], (rows, columns))[:, 0]
