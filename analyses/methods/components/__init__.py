"""Ablation, activation patching and steering: which components are edited, and with what values."""

from analyses.methods.components.components import (
    KINDS,
    Component,
    Components,
    FeatureNames,
    Units,
    components_named,
    components_of,
    mlp_of,
)
from analyses.methods.components.labelled import (
    Labelled,
    batches_of,
    labelled_activations,
    labels_of,
    place_cells,
)
from analyses.methods.components.minimal_pairs import (
    Batches,
    aligned,
    aligned_prompts,
    position_labels,
)
from analyses.methods.components.patching import Recorded, places_of
from analyses.methods.components.replacements import (
    METHODS,
    Replacements,
    check_method,
    gradient_at,
)

__all__ = [
    "KINDS",
    "METHODS",
    "Batches",
    "Component",
    "Components",
    "FeatureNames",
    "Labelled",
    "Recorded",
    "Replacements",
    "Units",
    "aligned",
    "aligned_prompts",
    "batches_of",
    "check_method",
    "components_named",
    "components_of",
    "gradient_at",
    "labelled_activations",
    "labels_of",
    "mlp_of",
    "place_cells",
    "places_of",
    "position_labels",
]
