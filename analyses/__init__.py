"""Analyses: one file a question, with a function and its result."""

from analyses.ablate import Ablation, ablate
from analyses.ablate_heads import HeadAblation, ablate_heads
from analyses.attention_patterns import AttentionPattern, attention_pattern
from analyses.attention_statistics import AttentionStatistics, attention_statistics
from analyses.attribute_edges import EdgeAttribution, attribute_edges
from analyses.attribute_nodes import NodeAttribution, attribute_nodes
from analyses.direct_logit_attribution import DirectLogitAttribution, direct_logit_attribution
from analyses.head_roles import HeadRoles, head_roles
from analyses.logit_lens import LogitLens, logit_lens
from analyses.neurons import Neurons, neurons
from analyses.patch_activations import ActivationPatching, patch_activations
from analyses.patch_paths import PathPatching, patch_paths
from analyses.prune import Pruning, prune
from analyses.steer import Steering, steer
from analyses.top_texts import TopTexts, top_texts
from analyses.train_lens import LensTraining, train_lens
from analyses.training_history import TrainingHistory, training_history

__all__ = [
    "Ablation",
    "ActivationPatching",
    "AttentionPattern",
    "AttentionStatistics",
    "DirectLogitAttribution",
    "EdgeAttribution",
    "HeadAblation",
    "HeadRoles",
    "LensTraining",
    "LogitLens",
    "Neurons",
    "NodeAttribution",
    "PathPatching",
    "Pruning",
    "Steering",
    "TopTexts",
    "TrainingHistory",
    "ablate",
    "ablate_heads",
    "attention_pattern",
    "attention_statistics",
    "attribute_edges",
    "attribute_nodes",
    "direct_logit_attribution",
    "head_roles",
    "logit_lens",
    "neurons",
    "patch_activations",
    "patch_paths",
    "prune",
    "steer",
    "top_texts",
    "train_lens",
    "training_history",
]
