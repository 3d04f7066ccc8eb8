"""Packed kernels, equivalent weights (folded norms, centred outputs), and the hash of weights."""

from interp.weights.finite import check_finite_weights
from interp.weights.hash import weight_hash
from interp.weights.packed import (
    can_pack,
    is_available,
    packed,
    packing_gain,
    product_shapes,
)
from interp.weights.processed import processed
from interp.weights.stripped import stripped

__all__ = [
    "can_pack",
    "check_finite_weights",
    "is_available",
    "packed",
    "packing_gain",
    "processed",
    "product_shapes",
    "stripped",
    "weight_hash",
]
