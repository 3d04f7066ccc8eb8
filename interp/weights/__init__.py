"""Views of a model's weights (packed kernels, folded norms, centred outputs), and their hash."""
