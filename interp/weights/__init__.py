"""Equivalent weights (folded norms, centred outputs), and the hash of weights."""

from interp.weights.finite import check_finite_weights
from interp.weights.hash import weight_hash, weight_sums
from interp.weights.processed import processed
from interp.weights.stripped import stripped

__all__ = ["check_finite_weights", "processed", "stripped", "weight_hash", "weight_sums"]
