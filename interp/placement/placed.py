"""A model whose layers lie on several devices, with the interface of a model on one.

    model = interp.load("hub:org/name", device_map="balanced")

The forward runs each layer on its device. Outside of a forward there is one device, that of the
entry: tokens go there, and logits, activations and weights that are read, are there.
"""

from dataclasses import replace
from typing import Any, NoReturn, cast

import torch
from torch import nn

from interp.config import Config
from interp.errors import InvalidInput
from interp.io import Table
from interp.model import Batch, Block, Context, Span, Stack, Stream, Tap, untouched
from interp.placement.device_map import DeviceMap
from interp.placement.remote import RemoteBlock, device_of, remote, run
from interp.text import Tokenizer
from interp.transformer import Transformer

ON_ONE_DEVICE = ("processed", "parallel")
"""What makes another model of all weights, on one device."""


class PlacedStack(Stack):
    """A stack whose blocks lie on several devices; all else lies on that of the entry."""

    def forward(
        self,
        batch: Batch,
        context: Context,
        tap: Tap = untouched,
        span: Span = Span(),  # noqa: B008 - frozen
    ) -> Stream:
        """The stream after the blocks of ``span``, on the device of the entry."""
        x = self.embed(batch, context, tap) if span.stream is None else span.stream
        for layer in list(range(len(self.blocks)))[span.start : span.stop]:
            x = run(self.placed_block(layer), self, x, context, tap.scoped(layer=layer))
        x = x.to(self.entry_device)
        return self.final_norm(x, tap) if span.stop is None else x

    @property
    def entry_device(self) -> torch.device:
        """The device of the entry."""
        return device_of(self)

    def placed_block(self, layer: int) -> Block:
        """The block of a layer, with its weights, on its device."""
        return super().block(layer)

    def block(self, layer: int) -> RemoteBlock:
        """The block of a layer, as seen from the device of the entry."""
        remotes: dict[int, RemoteBlock] = self.__dict__.setdefault("remotes", {})
        layer = range(len(self.blocks))[layer]
        if layer not in remotes:
            # Two threads that both make one use the same.
            remotes.setdefault(layer, remote(self.placed_block(layer), self))
        return remotes[layer]

    def owner_of(self, part: object) -> object:
        """The remote attention of an attention, whose keys and values a KV cache has."""
        return self._owners()[id(part)]

    def _owners(self) -> dict[int, object]:
        owners: dict[int, object] = self.__dict__.setdefault("owners", {})
        if not owners:
            made = {
                id(self.placed_block(layer).attn): self.block(layer).attn
                for layer in range(len(self.blocks))
            }
            owners.update(made)
        return owners

    def __getstate__(self) -> dict[str, Any]:
        """The state without the remote blocks, which are made anew."""
        return {
            name: value for name, value in vars(self).items() if name not in ("remotes", "owners")
        }


class PlacedTransformer(Transformer):
    """A Transformer whose layers lie on several devices.

    Weights that are read from its layers are copies on the device of the entry: writing into them
    has no effect on the model. :meth:`named_parameters` has the weights themselves.
    """

    def __init__(self, config: Config, tokenizer: Tokenizer | None = None) -> None:
        super().__init__(config, tokenizer)
        _place_stacks(self)

    @property
    def placement(self) -> DeviceMap:
        """The device of the entry and of each layer, as the weights are now."""
        (stack,) = self.stacks
        blocks = range(len(stack.blocks))
        layers = tuple(device_of(cast("PlacedStack", stack).placed_block(n)) for n in blocks)
        return DeviceMap(self.device, layers)

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """Each device that holds weights, that of the entry first."""
        return self.placement.devices

    @property
    def other_devices(self) -> tuple[torch.device, ...]:  # pyright: ignore[reportIncompatibleVariableOverride] - as the weights are now
        """The devices of layers that are on another one than the entry."""
        return self.devices[1:]

    def description(self) -> Table:
        """As that of any model, and where its layers lie."""
        table = super().description()
        return replace(table, rows=[*table.rows, ("devices", str(self.placement))])

    def require_whole(self, what: str) -> None:
        """Refuse ``what``, if it makes another model of all weights, on one device.

        Raises:
            InvalidInput: it does.
        """
        if what in ON_ONE_DEVICE:
            raise InvalidInput(
                f"{what}: the layers of this model lie on {len(self.devices)} devices, and the "
                "result would be on one. Load the model without device_map=, and do this with it."
            )

    def __deepcopy__(self, memo: object) -> NoReturn:
        """Refused, as weights that are read from a layer can't be changed in place.

        Raises:
            InvalidInput: always.
        """
        raise InvalidInput(
            "A copy of a model with device_map= is not made: what changes its weights in place "
            "would change copies of them. Load the model anew, without device_map= if it fits."
        )


def place(model: Transformer, device_map: object) -> PlacedTransformer:
    """Move each layer of a model to its device, and the rest to the device of the entry.

    Args:
        model: the model, which is changed, as by :meth:`torch.nn.Module.to`.
        device_map: as for :func:`interp.load`.

    Raises:
        InvalidInput: as for :meth:`DeviceMap.of`.
    """
    made = DeviceMap.of(device_map, model)
    moved: dict[int, nn.Parameter] = {}
    for prefix, part in model.named_modules():
        path = f"{prefix}." if prefix else ""
        for name, weight in list(part.named_parameters(recurse=False)):
            device = made.of_weight(path + name)
            if weight.device != device and id(weight) not in moved:
                data = weight.detach().to(device)
                moved[id(weight)] = nn.Parameter(data, requires_grad=weight.requires_grad)
            part.register_parameter(name, moved.get(id(weight), weight))
        for name, buffer in list(part.named_buffers(recurse=False)):
            part.register_buffer(name, buffer.to(made.of_weight(path + name)), persistent=False)
    model.__class__ = PlacedTransformer
    _place_stacks(model)
    return cast("PlacedTransformer", model)


def _place_stacks(model: Transformer) -> None:
    for stack in model.stacks:
        stack.__class__ = PlacedStack
