"""Circuits: sets of edges of the computation graph, run by themselves."""
