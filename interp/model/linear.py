"""The kernel of products x·Wᵀ + b, which can be replaced (see :mod:`interp.kernels.packed`)."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

Kernel = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""``kernel(x [... n_in], weight [n_out n_in], bias [n_out] or None)`` gives ``[... n_out]``."""


DEFAULT = "default"
"""The name of PyTorch's own kernel, which every model uses at first."""


class Linear(nn.Module):
    """Base class of parts with weights: every product with them goes through ``linear``."""

    linear: Kernel = staticmethod(F.linear)

    @property
    def products(self) -> str:
        """The name of the kernel that computes its products."""
        name_for = getattr(self.linear, "name_for", None)
        return DEFAULT if name_for is None else name_for(next(self.parameters()))
