"""Corpora that may be larger than memory: their texts in batches, and the largest activations."""
