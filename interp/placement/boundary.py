"""What crosses from the device of the entry to that of a layer, and back.

    the stream x      moved before a layer on another device than the layer before it
    the context       positions and padding: moved once per forward and device
    the KV cache      keys and values stay on the device of their layer
    edits             what is edited is moved to the entry's device, edited there, moved back
    recording         tensors are stored where they were computed

Edits, and functions of a user, so see tensors of one device, that of the entry.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from interp.execution import Recorder
from interp.model import Context, KeysValues, Tap, Untouched
from interp.points import Place, Point

OwnerOf = Callable[[object], object]
"""The attention that is known outside of a forward, given the one that computes."""


@dataclass(frozen=True, eq=False)
class MovedTap:
    """The tap of a layer on another device: edits are made on the device of the entry.

    Attributes:
        tap: the tap of the forward.
        entry: the device of the entry.
    """

    tap: Tap
    entry: torch.device

    def __call__(self, point: Point, value: Tensor) -> Tensor:
        """Read or replace ``value``, which is moved if the tap may do more than store it."""
        if not changes(self.tap, point):
            return self.tap(point, value)
        return self.tap(point, value.to(self.entry)).to(value.device)

    def must_form(self, *points: Point) -> bool:
        """As of the tap of the forward."""
        return self.tap.must_form(*points)

    def scoped(self, **scope: object) -> "MovedTap":
        """The same tap for another part of the model."""
        return replace(self, tap=self.tap.scoped(**scope))


def moved_tap(tap: Tap, entry: torch.device) -> Tap:
    """The tap of a layer."""
    return tap if type(tap) is Untouched else MovedTap(tap, entry)


def changes(tap: Tap, point: Point) -> bool:
    """Whether ``tap`` may edit the tensor at ``point`` of its scope, or hand it to an edit.

    The plan of a recorder lists its edits; any other tap is assumed to edit.
    """
    if not isinstance(tap, Recorder):
        return True
    place = Place(point, tap.layer if point.in_block else None, tap.norm)
    return place in tap.plan.edits or place in tap.plan.read_by_edits


@dataclass(frozen=True, eq=False)
class MovedKV:
    """The KV cache of a layer on another device.

    Attributes:
        kv_cache: the KV cache of the forward, of any kind.
        device: the device of the layer.
        owner_of: see :data:`OwnerOf`.
    """

    kv_cache: Any
    device: torch.device
    owner_of: OwnerOf

    def extend(self, owner: object, k: Tensor, v: Tensor) -> KeysValues:
        """Keys and values of all columns, on the device of the layer."""
        k, v = self.kv_cache.extend(self.owner_of(owner), k, v)
        return k.to(self.device), v.to(self.device)

    def fixed(self, owner: object, compute: Callable[[], KeysValues]) -> KeysValues:
        """Keys and values that do not grow, on the device of the layer."""
        k, v = self.kv_cache.fixed(self.owner_of(owner), compute)
        return k.to(self.device), v.to(self.device)


def moved_context(context: Context, device: torch.device, owner_of: OwnerOf) -> Context:
    """The context on the device of a layer; moved once per forward, and so are its masks formed."""

    def moved() -> Context:
        return replace(
            context,
            positions=context.positions.to(device),
            real=None if context.real is None else context.real.to(device),
            kv_cache=MovedKV(context.kv_cache, device, owner_of),
            _shared={},
        )

    return context.once((moved_context, device), moved)
