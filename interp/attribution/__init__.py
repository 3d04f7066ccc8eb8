"""Contributions of parts to a metric: terms of a logit, and estimates from gradients."""
