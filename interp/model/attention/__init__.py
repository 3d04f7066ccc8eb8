"""Attention: projections, mask, scores, pattern, output; within a stack or across stacks."""
