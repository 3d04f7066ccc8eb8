"""Benchmarks of ``interp`` and other libraries on one machine, and generators of documentation."""
