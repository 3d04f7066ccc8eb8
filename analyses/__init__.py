"""Analyses: one file a question, with a function and its result."""

from analyses.ablate import Ablation, ablate
from analyses.ablate_heads import HeadAblation, ablate_heads
from analyses.attention_patterns import AttentionPattern, attention_pattern
from analyses.logit_lens import LogitLens, logit_lens
from analyses.training_history import TrainingHistory, training_history

__all__ = [
    "Ablation",
    "AttentionPattern",
    "HeadAblation",
    "LogitLens",
    "TrainingHistory",
    "ablate",
    "ablate_heads",
    "attention_pattern",
    "logit_lens",
    "training_history",
]
