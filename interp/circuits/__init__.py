"""Circuits: sets of edges run by themselves; products of the weights of heads."""
