"""Calling the hooks of a point in a forward."""

import torch
from torch import Tensor, nn

from interp.compat.caching_hooks import SaveHook
from interp.compat.errors import InvalidInput
from interp.compat.hook_point import HookPoint
from interp.errors import shorten


def call_hooks(point: nn.Module, value: Tensor) -> Tensor:
    """The value of a point after its hooks, with which the forward continues.

    Hooks receive a copy that they may change in place, unless all of them only store it. Their
    return value is broadcast to the shape of the tensor. A module that stands in the place of the
    point, such as a sparse autoencoder, is called with the value itself.

    Raises:
        InvalidInput: the return value is not a tensor that can be broadcast.
    """
    if not isinstance(point, HookPoint):
        return point(value)
    if not point.is_hooked:
        return value
    after = point(value if point.only_stores(SaveHook) else value.clone())
    if isinstance(after, Tensor) and after.shape == value.shape:
        return after
    if not isinstance(after, Tensor) or not _broadcasts(after.shape, value.shape):
        raise InvalidInput(
            f"The hooks of {point.name} returned {shorten(after)}; expected None or a tensor that "
            f"broadcasts to {tuple(value.shape)}."
        )
    return after.expand_as(value)


def _broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    pairs = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(size in (1, n) for size, n in pairs)
