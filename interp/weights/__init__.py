"""Packed kernels, equivalent weights (folded norms, centred outputs), and the hash of weights."""
