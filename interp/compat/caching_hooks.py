"""Calling the hooks of a point; hooks that store activations; filters by name."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from interp.compat.errors import InvalidInput
from interp.compat.hook_point import HookPoint
from interp.compat.utils.slices import take
from interp.errors import shorten

_HEADS = ("hook_q", "hook_k", "hook_v", "hook_z", "hook_result")
"""Points whose position axis is the third from the end; at all others it is the second."""


class SaveHook:
    """A hook that stores a copy of its tensor and changes nothing.

    Args:
        cache: the dictionary to store it in, by the name of the point (with ``_grad`` appended for
            a gradient).
        is_backward: whether gradients are stored.
        device: the device to store on; ``None`` means that of the tensor.
        remove_batch_dim: whether to store only the first row, without the batch axis.
        pos_slice: the positions to store; all by default. A single one keeps its axis, of size 1.
    """

    def __init__(
        self,
        cache: dict[str, Tensor],
        *,
        is_backward: bool = False,
        device: torch.device | str | None = None,
        remove_batch_dim: bool = False,
        pos_slice: Any = None,
    ) -> None:
        self.cache, self.suffix = cache, "_grad" if is_backward else ""
        self.device, self.remove_batch_dim = device, remove_batch_dim
        self.pos_slice = [pos_slice] if isinstance(pos_slice, int) else pos_slice

    def __call__(self, tensor: Tensor, hook: HookPoint) -> None:
        """Store the tensor."""
        name = str(hook.name)
        stored = tensor.detach()[0] if self.remove_batch_dim else tensor.detach()
        axis = -3 if name.endswith(_HEADS) else -2
        if self.pos_slice is not None and tensor.ndim >= -axis:
            stored = take(stored, self.pos_slice, axis)
        device = stored.device if self.device is None else self.device
        self.cache[name + self.suffix] = stored.to(device, copy=True)


def as_filter(names_filter: object) -> Callable[[str], bool]:
    """Convert a filter of any form to a function of names.

    Raises:
        InvalidInput: it is not a filter.
    """
    if names_filter is None:
        return lambda name: True  # noqa: ARG005
    if isinstance(names_filter, str):
        return lambda name: name == names_filter
    if callable(names_filter):
        return names_filter  # pyright: ignore[reportReturnType] - checked when called
    if isinstance(names_filter, list | tuple | set | frozenset):
        return frozenset(names_filter).__contains__  # pyright: ignore[reportUnknownArgumentType]
    raise InvalidInput(
        f"names_filter={shorten(names_filter)} must be a name, a list of names or a function."
    )


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
