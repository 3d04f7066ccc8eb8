"""Behaviour of attention heads: averages of their weights, and prompts that reveal their roles."""

from analyses.methods.heads.attention_averages import (
    entropy,
    mass,
    mean_over_queries,
    output_factor,
    pattern_at,
    uniform_weights,
    value_weights,
    visible_keys,
    written_norms,
)
from analyses.methods.heads.query_averages import (
    BOS,
    DISTANCE,
    ENTROPY,
    FIRST,
    NORMALIZED,
    VARIANCE,
    WEIGHTINGS,
    AveragesOfLayers,
    Measured,
    QueryAverages,
    offsets_by_name,
)
from analyses.methods.heads.repetition import SINKS, RepeatedRows, repeated_rows
from analyses.methods.heads.token_classes import OTHER, Classes, selected_tokens, tokens_of_classes

__all__ = [
    "BOS",
    "DISTANCE",
    "ENTROPY",
    "FIRST",
    "NORMALIZED",
    "OTHER",
    "SINKS",
    "VARIANCE",
    "WEIGHTINGS",
    "AveragesOfLayers",
    "Classes",
    "Measured",
    "QueryAverages",
    "RepeatedRows",
    "entropy",
    "mass",
    "mean_over_queries",
    "offsets_by_name",
    "output_factor",
    "pattern_at",
    "repeated_rows",
    "selected_tokens",
    "tokens_of_classes",
    "uniform_weights",
    "value_weights",
    "visible_keys",
    "written_norms",
]
