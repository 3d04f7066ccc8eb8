"""Timings and memory of ``interp`` beside those of other libraries, on one machine."""
