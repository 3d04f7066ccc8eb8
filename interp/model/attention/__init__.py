"""Attention within a stack or across stacks: projections, mask, scores, pattern and output."""
