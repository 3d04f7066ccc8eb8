"""How is x·Wᵀ + b computed? By a kernel that each part of a model holds, and that can be changed.

Nearly all the time of a forward goes into these products, so which kernel computes them is worth a
choice (see :mod:`interp.weights.packed`); the mathematics is the same.
"""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

Kernel = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""``kernel(x [... n_in], weight [n_out n_in], bias [n_out] or None)`` gives ``[... n_out]``."""


DEFAULT = "default"
"""The name of the kernel that every model begins with."""


class Linear(nn.Module):
    """A part of a model that multiplies by weights: every product goes through ``linear``."""

    linear: Kernel = staticmethod(F.linear)

    @property
    def products(self) -> str:
        """The name of the kernel of its products: what the kernel says of its weights."""
        told = getattr(self.linear, "name_for", None)
        return DEFAULT if told is None else told(next(self.parameters()))
