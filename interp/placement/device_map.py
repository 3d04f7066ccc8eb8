"""Which device each layer of a model lies on.

    "balanced"                                  all GPUs, alike in bytes of weights
    ["cuda:0", "cuda:2"]                        these devices, alike in bytes of weights
    {"embed": "cuda:0", 0: "cuda:0", 1: "cuda:1", …}        the device of each layer

``embed`` is the entry and the exit: embeddings, the last norm and the unembedding. They lie on one
device, so that tokens, logits and metrics do, and a tied embedding is one tensor.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from interp.errors import InvalidInput, first_line, shorten
from interp.integers import as_integer
from interp.model import Network

BALANCED = "balanced"
EMBED, EXIT = "embed", "exit"
LAYER = re.compile(r"\.blocks\.(\d+)\.")
"""The layer in the name of a weight."""


@dataclass(frozen=True)
class DeviceMap:
    """The device of each layer.

    Attributes:
        entry: the device of the embeddings, the last norm and the unembedding.
        layers: the device of each block.
    """

    entry: torch.device
    layers: tuple[torch.device, ...]

    @classmethod
    def of(cls, requested: object, model: Network) -> "DeviceMap":
        """The devices of the layers of a model, which may be on the meta device.

        Args:
            requested: as for :func:`interp.load`.
            model: the model.

        Raises:
            InvalidInput: there is no such device or layer, layers are left out, or the layers of
                this model can't lie on several devices.
        """
        _check_architecture(model)
        if isinstance(requested, Mapping):
            made = _of_layers(requested, len(model.stacks[0].blocks))
        else:
            made = _balanced(_devices(requested), model)
        _check_shared(made, model)
        return made

    def of_weight(self, name: str) -> torch.device:
        """The device of the weight of this name."""
        layer = LAYER.search(name)
        return self.entry if layer is None else self.layers[int(layer[1])]

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """Each device once, that of the entry first."""
        return tuple(dict.fromkeys((self.entry, *self.layers)))

    def __str__(self) -> str:
        """For example ``embed and exit on cuda:0, layers 0-3 on cuda:0, layers 4-7 on cuda:1``."""
        parts, first = [f"{EMBED} and {EXIT} on {self.entry}"], 0
        for layer, device in enumerate(self.layers):
            if layer + 1 == len(self.layers) or self.layers[layer + 1] != device:
                name = f"layer {layer}" if layer == first else f"layers {first}-{layer}"
                parts.append(f"{name} on {device}")
                first = layer + 1
        return ", ".join(parts)


# ---- what is refused ---------------------------------------------------------------------------


def _check_architecture(model: Network) -> None:
    if len(model.stacks) > 1:
        raise InvalidInput(
            "device_map= takes models of one stack. This one is an encoder–decoder, each layer of "
            "whose decoder reads the encoder's output, which would be copied to all devices; load "
            "it on one device, or divide it with interp.parallel."
        )
    if model.stacks[0].ranges is not None:
        raise InvalidInput(
            "device_map= does not take this model: its layers share learned position biases, "
            "which lie on one device. Load it on one device, or divide it with interp.parallel."
        )


def _check_shared(made: DeviceMap, model: Network) -> None:
    """Refuse one weight on two devices."""
    first: dict[int, str] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        other = first.setdefault(id(weight), name)
        if made.of_weight(other) != made.of_weight(name):
            raise InvalidInput(
                f"device_map= puts {other} on {made.of_weight(other)} and {name} on "
                f"{made.of_weight(name)}, but they are one weight, which both layers share. Put "
                "these layers on one device."
            )


def _checked_device(name: Any) -> torch.device:  # noqa: ANN401 - what the caller gave
    try:
        device = torch.empty(0, device=torch.device(name)).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InvalidInput(f"device_map= names {shorten(name)}: {first_line(error)}") from error
    if device.type == "meta":
        raise InvalidInput("device_map= names meta, which holds no data; name cpu or a GPU.")
    return device


# ---- a device for each layer -------------------------------------------------------------------


def _of_layers(requested: Mapping[Any, Any], n_layers: int) -> DeviceMap:
    """The devices of a mapping.

    Raises:
        InvalidInput: a key is not a layer, a layer is left out, or the exit is elsewhere than the
            entry.
    """
    devices: dict[int | str, torch.device] = {}
    for key, name in requested.items():
        layer = key if key in (EMBED, EXIT) else as_integer(key)
        if layer is None or (isinstance(layer, int) and not 0 <= layer < n_layers):
            raise InvalidInput(
                f"device_map= has the key {shorten(key)}; expected {EMBED!r}, {EXIT!r} or a layer, "
                f"0 to {n_layers - 1}."
            )
        devices[layer] = _checked_device(name)
    missing = [str(key) for key in (EMBED, *range(n_layers)) if key not in devices]
    if missing:
        listed = ", ".join(missing[:8]) + (", …" if len(missing) > 8 else "")  # noqa: PLR2004 - a line
        raise InvalidInput(
            f"device_map= leaves out {listed}. Name a device for {EMBED!r} and for each layer, 0 "
            f'to {n_layers - 1}, or give "{BALANCED}".'
        )
    entry = devices[EMBED]
    if devices.get(EXIT, entry) != entry:
        raise InvalidInput(
            f"device_map= puts {EMBED!r} on {entry} and {EXIT!r} on {devices[EXIT]}. The stream "
            "returns to the device of the tokens, where logits and metrics are computed and a tied "
            f"embedding is one tensor: give both the same device, or leave out {EXIT!r}."
        )
    return DeviceMap(entry, tuple(devices[layer] for layer in range(n_layers)))


def _devices(requested: object) -> list[torch.device]:
    """The devices of a list, or all GPUs.

    Raises:
        InvalidInput: there are none, or one does not exist.
    """
    if requested == BALANCED:
        names: Sequence[Any] = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
        if not names:
            raise InvalidInput(
                f'device_map="{BALANCED}" divides layers over all GPUs, and PyTorch sees none. '
                "Leave it out, or name devices."
            )
    elif isinstance(requested, list | tuple) and requested:
        names = requested
    else:
        raise InvalidInput(
            f'device_map={shorten(requested)}: expected "{BALANCED}", a list of devices, or a '
            f"mapping from {EMBED!r} and each layer to its device."
        )
    return [_checked_device(name) for name in names]


def _balanced(devices: Sequence[torch.device], model: Network) -> DeviceMap:
    """Consecutive layers on each device, so that the largest share of the weights is smallest."""
    entry, sizes = 0, [0] * len(model.stacks[0].blocks)
    for name, weight in model.named_parameters():
        layer = LAYER.search(name)
        if layer is None:
            entry += weight.nbytes
        else:
            sizes[int(layer[1])] += weight.nbytes
    numbers = shares_of(entry, sizes, len(devices))
    return DeviceMap(devices[0], tuple(devices[number] for number in numbers))


def shares_of(entry: int, layers: Sequence[int], n: int) -> list[int]:
    """For each layer, which of ``n`` devices holds it.

    The layers of a device are consecutive, in the order of the devices; the largest sum of a device
    is as small as possible.

    Args:
        entry: bytes of what the first device holds beside its layers.
        layers: bytes of each layer.
        n: number of devices.
    """
    sums = {entry}
    for first in range(len(layers)):
        total = 0
        for size in layers[first:]:
            total += size
            sums |= {total, entry + total} if first == 0 else {total}
    limits = sorted(sums)
    index = bisect_left(limits, True, key=lambda limit: _fits(entry, layers, n, limit))  # noqa: FBT003 - a key
    return list(_filled(entry, layers, limits[index]))


def _fits(entry: int, layers: Sequence[int], n: int, limit: int) -> bool:
    """Whether ``n`` devices of ``limit`` bytes hold everything."""
    if entry > limit or max(layers, default=0) > limit:
        return False
    return max(_filled(entry, layers, limit), default=0) < n


def _filled(entry: int, layers: Sequence[int], limit: int) -> Iterator[int]:
    """The number of each layer's device, where each is filled up to ``limit`` before the next."""
    number, used = 0, entry
    for size in layers:
        if used + size > limit:
            number, used = number + 1, 0
        used += size
        yield number
