"""Circuits: sets of edges that are run in isolation, and products of the weights of heads."""
