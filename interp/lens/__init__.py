"""Predictions from the stream of any layer: by the unembedding, or by trained translators."""
