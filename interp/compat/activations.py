"""SoLU, x·softmax(x) over the neurons, which TransformerLens's toy models use (Elhage et al. 2022).

The core does not have it: the MLP of a façade is given it as its activation function. The norm that
follows in ``solu_ln`` is applied at the point ``post`` (:mod:`interp.compat.facade_tap`).
"""

from torch import Tensor


def solu(x: Tensor) -> Tensor:
    """x·softmax(x)."""
    return x * x.softmax(-1)
