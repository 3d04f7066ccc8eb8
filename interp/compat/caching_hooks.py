"""Hooks that store activations, and filters of their names."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from interp.compat.hook_point import HookPoint
from interp.compat.slices import take
from interp.errors import InvalidInput, shorten

_HEADS = ("hook_q", "hook_k", "hook_v", "hook_z", "hook_result")
"""Points whose axis of positions is the third from the end; elsewhere it is the second."""


class SaveHook:
    """A hook that stores a copy of what it sees and changes nothing.

    Args:
        cache: where it is stored, by the name of the point (of a gradient, with ``_grad``).
        is_backward: whether gradients are stored.
        device: where to; ``None`` for where they are.
        remove_batch_dim: whether the first of a batch of one is stored.
        pos_slice: which positions; all by default. A single one keeps its axis, of size 1.
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
        """Store it."""
        name = str(hook.name)
        stored = tensor.detach()[0] if self.remove_batch_dim else tensor.detach()
        axis = -3 if name.endswith(_HEADS) else -2
        if self.pos_slice is not None and tensor.ndim >= -axis:
            stored = take(stored, self.pos_slice, axis)
        device = stored.device if self.device is None else self.device
        self.cache[name + self.suffix] = stored.to(device, copy=True)


def as_filter(names_filter: object) -> Callable[[str], bool]:
    """A function of names, of any form of a filter.

    Raises:
        InvalidInput: it is none.
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
