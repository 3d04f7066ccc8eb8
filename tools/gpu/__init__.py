"""The GPU-marked tests and the benchmarks on CUDA, in one command: ``python -m tools.gpu``."""
