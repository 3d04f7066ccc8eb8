"""Contributions of parts to a metric: terms of a logit, and estimates from gradients."""

from analyses.methods.attribution.agreement import Agreement, cells_to_check, checked_frame
from analyses.methods.attribution.edges import (
    TOLERANCE,
    EdgeScores,
    edge_scores,
    most_points,
    steps_and_tolerance,
)
from analyses.methods.attribution.feature_outputs import (
    ActiveFeatures,
    Outputs,
    WrittenFeatures,
    all_outputs,
    not_read,
    outputs_of,
    places_of_features,
    written_features,
)
from analyses.methods.attribution.feature_terms import (
    FeatureWalk,
    feature_walk,
    parts_in_order,
)
from analyses.methods.attribution.head_scores import Head, PromptScores, Vectors
from analyses.methods.attribution.logit_terms import (
    Terms,
    check_linear_logits,
    direction_at_mlp,
    heads_together,
    logit_direction,
    places_of_terms,
    walk_from_logits,
)
from analyses.methods.attribution.path import Path
from analyses.methods.attribution.rules import RULES
from analyses.methods.attribution.sparse_vectors import SparseVectors
from analyses.methods.attribution.stream_terms import (
    Columns,
    Directions,
    Factor,
    Part,
    ReadTerms,
    Split,
    StepDirections,
    StreamWalk,
    Walk,
    places_of_stream,
    point_of_terms,
    written_points,
)
from analyses.methods.attribution.token_logits import TokenLogits, places_of_logits, unembedding_of

__all__ = [
    "RULES",
    "TOLERANCE",
    "ActiveFeatures",
    "Agreement",
    "Columns",
    "Directions",
    "EdgeScores",
    "Factor",
    "FeatureWalk",
    "Head",
    "Outputs",
    "Part",
    "Path",
    "PromptScores",
    "ReadTerms",
    "SparseVectors",
    "Split",
    "StepDirections",
    "StreamWalk",
    "Terms",
    "TokenLogits",
    "Vectors",
    "Walk",
    "WrittenFeatures",
    "all_outputs",
    "cells_to_check",
    "check_linear_logits",
    "checked_frame",
    "direction_at_mlp",
    "edge_scores",
    "feature_walk",
    "heads_together",
    "logit_direction",
    "most_points",
    "not_read",
    "outputs_of",
    "parts_in_order",
    "places_of_features",
    "places_of_logits",
    "places_of_stream",
    "places_of_terms",
    "point_of_terms",
    "steps_and_tolerance",
    "unembedding_of",
    "walk_from_logits",
    "written_features",
    "written_points",
]
