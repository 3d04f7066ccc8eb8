"""A corpus that may be larger than memory: its texts in batches, the largest values over it."""
