"""A bundled model and a pair that it reads, of which results are made."""

import interp

PAIR = ("abcxab", "abdxab")
LOGIT = interp.metrics.logit(3)


def model() -> interp.Transformer:
    """Two layers of heads, made by hand."""
    return interp.load("induction-by-hand")
