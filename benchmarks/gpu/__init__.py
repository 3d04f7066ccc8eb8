"""The GPU-marked tests and the marks on CUDA, in one command: ``python -m benchmarks.gpu``."""
