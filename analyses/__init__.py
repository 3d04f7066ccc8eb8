"""Analyses: one question a file, a function and its result."""

from analyses.ablate_heads import HeadAblation, ablate_heads
from analyses.attention_patterns import AttentionPattern, attention_pattern

__all__ = ["AttentionPattern", "HeadAblation", "ablate_heads", "attention_pattern"]
