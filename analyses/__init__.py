"""Analyses: one file a question, with a function and its result."""

from analyses.ablate_heads import HeadAblation, ablate_heads
from analyses.attention_patterns import AttentionPattern, attention_pattern
from analyses.logit_lens import LogitLens, logit_lens
from analyses.train_lens import LensTraining, train_lens
from analyses.training_history import TrainingHistory, training_history

__all__ = [
    "AttentionPattern",
    "HeadAblation",
    "LensTraining",
    "LogitLens",
    "TrainingHistory",
    "ablate_heads",
    "attention_pattern",
    "logit_lens",
    "train_lens",
    "training_history",
]
