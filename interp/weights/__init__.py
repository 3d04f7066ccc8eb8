"""Models of the same weights or the same function: folded norms, centred outputs, no mask."""

from interp.weights.processed import processed
from interp.weights.stripped import stripped

__all__ = ["processed", "stripped"]
