"""Equivalent weights (folded norms, centred outputs), and the hash of weights."""

from interp.weights.hash import assume_constant_weights, weight_hash, weight_state, weight_sums
from interp.weights.processed import processed
from interp.weights.stripped import stripped

__all__ = [
    "assume_constant_weights",
    "processed",
    "stripped",
    "weight_hash",
    "weight_state",
    "weight_sums",
]
