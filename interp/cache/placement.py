"""The device and dtype in which a cache returns its tensors."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from interp.errors import InvalidInput
from interp.model import Network


@dataclass(frozen=True)
class Placement:
    """A device and a dtype.

    Attributes:
        device: the device; ``None`` for the device of the run.
        dtype: the dtype; ``None`` for the dtype of the run.
    """

    device: torch.device | None = None
    dtype: torch.dtype | None = None

    def changed(self, target: torch.device | torch.dtype | str) -> "Placement":
        """The same placement with another device, or another dtype.

        Raises:
            InvalidInput: there is no such device, or the dtype is not floating-point.
        """
        if not isinstance(target, torch.dtype):
            return replace(self, device=_checked_device(target))
        if not target.is_floating_point:
            raise InvalidInput(f"A cache can't be cast to {target}, which is not floating-point.")
        return replace(self, dtype=target)

    def placed(self, tensor: Tensor) -> Tensor:
        """The tensor on this device and in this dtype."""
        return tensor.to(self.device or tensor.device, self.dtype or tensor.dtype)

    def as_computed(self, tensor: Tensor, model: Network) -> Tensor:
        """A placed tensor, moved and cast back to the model's device and dtype."""
        device = tensor.device if self.device is None else model.device
        return tensor.to(device, tensor.dtype if self.dtype is None else model.dtype)


def _checked_device(target: torch.device | str) -> torch.device:
    try:
        return torch.empty(0, device=target).device
    except (RuntimeError, AssertionError) as error:
        raise InvalidInput(
            f"{target!r} is neither an available device nor a torch.dtype: {error}"
        ) from error
