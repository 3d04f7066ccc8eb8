"""Symmetries of a model: permutations and changes of basis that leave its function unchanged."""

from analyses.methods.symmetries.observed import (
    HEAD,
    LAYER,
    MODEL,
    OUTPUT,
    PATTERN,
    Observed,
    Part,
    observed,
)
from analyses.methods.symmetries.orders import (
    KINDS,
    Order,
    has_order,
    in_order,
    movable_tokens,
    other_order,
    permuted,
    token_orders,
)
from analyses.methods.symmetries.own_inputs import (
    OwnInputs,
    layer_ends,
    layer_starts,
    own_inputs,
    pattern_and_scores,
)
from analyses.methods.symmetries.verify import TIGHT, Identity, difference, random_inputs, verify

__all__ = [
    "HEAD",
    "KINDS",
    "LAYER",
    "MODEL",
    "OUTPUT",
    "PATTERN",
    "TIGHT",
    "Identity",
    "Observed",
    "Order",
    "OwnInputs",
    "Part",
    "difference",
    "has_order",
    "in_order",
    "layer_ends",
    "layer_starts",
    "movable_tokens",
    "observed",
    "other_order",
    "own_inputs",
    "pattern_and_scores",
    "permuted",
    "random_inputs",
    "token_orders",
    "verify",
]
