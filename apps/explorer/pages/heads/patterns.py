"""Encodes the patterns of all heads as bytes, where 255 is a weight of 1.

Beyond :data:`MOST_BYTES`, patterns are
sent at a reduced size, and only those of one layer at full size.
"""

from typing import Any

from analyses import AttentionPatterns
from analyses.results import as_bytes, encoded

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
    if sum(pattern.numel() for pattern in result.patterns) <= most:
        return [encoded(as_bytes(pattern)) for pattern in result.patterns]
    whole = encoded(as_bytes(result.patterns[layer]))
    small = encoded(result.thumbnails(SMALL))
    return {"thumbnails": small, "layer": {"index": layer, "patterns": whole}}
