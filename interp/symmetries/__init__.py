"""Symmetries of a model: permutations and changes of basis that leave its function unchanged."""
