"""What each library does when it is tried: ``python -m benchmarks.features``."""
