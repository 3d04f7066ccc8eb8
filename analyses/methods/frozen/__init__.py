"""A run as a linear network: patterns, divisors of norms and gates of MLPs keep their values."""

from analyses.methods.frozen.checked import check_linear_once_frozen
from analyses.methods.frozen.frozen_attention import FrozenAttention
from analyses.methods.frozen.frozen_model import (
    BLOCK_BYTES,
    Directions,
    FrozenModel,
    Reading,
    attention_of,
    places_of_run,
)
from analyses.methods.frozen.score_gradients import integrated_gradients, pattern_of
from analyses.methods.frozen.written import Branch, output_norm

__all__ = [
    "BLOCK_BYTES",
    "Branch",
    "Directions",
    "FrozenAttention",
    "FrozenModel",
    "Reading",
    "attention_of",
    "check_linear_once_frozen",
    "integrated_gradients",
    "output_norm",
    "pattern_of",
    "places_of_run",
]
