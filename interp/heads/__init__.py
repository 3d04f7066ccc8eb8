"""Behaviour of attention heads: averages of their weights, and prompts that reveal their roles."""
