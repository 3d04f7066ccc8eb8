"""What is kept of each weight that is read, and on which device.

Of a model that several processes hold together, each keeps a share; with ``device_map=``, each
layer has its device.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from interp.model import Network
from interp.placement import DeviceMap, place
from interp.transformer import Transformer

Share = Callable[[Network, str, Tensor], Tensor]
"""``share(model, name, weight)``: what is kept of a weight of a model, which has no data."""
_SHARE: ContextVar[Share | None] = ContextVar("share", default=None)


@contextmanager
def reading_shares(share: Share) -> Generator[None]:
    """Models loaded in the block keep what ``share`` returns of each weight, one after another."""
    token = _SHARE.set(share)
    try:
        yield
    finally:
        _SHARE.reset(token)


def own_share(model: Network, name: str, weight: Tensor) -> Tensor:
    """What is kept of a weight: all of it, unless shares are read."""
    share = _SHARE.get()
    return weight if share is None else share(model, name, weight)


Device = str | torch.device | None
_DEVICE_MAP: ContextVar[object] = ContextVar("device map", default=None)


@contextmanager
def weights_at(device_map: object) -> Generator[None]:
    """Models loaded in the block have this device map, if it is not ``None``."""
    token = _DEVICE_MAP.set(device_map)
    try:
        yield
    finally:
        _DEVICE_MAP.reset(token)


def device_of_weights(model: Network, device: Device) -> Callable[[str], Device]:
    """The device of each weight of a model without data, by name: ``device``, or its layer's.

    Raises:
        InvalidInput: as for :meth:`interp.placement.DeviceMap.of`.
    """
    requested = _DEVICE_MAP.get()
    return (lambda _: device) if requested is None else DeviceMap.of(requested, model).of_weight


def placed(model: Transformer) -> Transformer:
    """The model whose weights were read, with the device map of the block."""
    requested = _DEVICE_MAP.get()
    return model if requested is None else place(model, requested)
