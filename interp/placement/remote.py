"""Blocks as the rest of the toolkit sees them: all of their tensors on the device of the entry.

A remote block has the parts of a block, but no weights. A weight that is read from it, such as
``block.attn.W_Q`` or ``block.ln1.gain``, is moved from the device of the block; so is computed what
is called part by part, such as ``block.attn.scores(q, k, context)``. The whole block, restarted or
not, is run on its own device: only the stream, or the state of the restart, is moved.
"""

import copy
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.model import Block, Context, RestartPoint, Stream, Tap, untouched
from interp.placement.boundary import moved_context, moved_tap


@runtime_checkable
class Home(Protocol):
    """The stack that a block is in."""

    @property
    def entry_device(self) -> torch.device:
        """The device of the entry."""
        ...

    def owner_of(self, part: object) -> object:
        """The remote part of a part."""
        ...


class RemotePart(nn.Module):
    """A part without weights, which reads those of another.

    Attributes:
        placed: the part with the weights.
        home: the stack that it is in.
    """

    placed: Any
    home: Any

    def named_parameters(self, *args: Any, **options: Any) -> Iterator[tuple[str, nn.Parameter]]:  # noqa: ANN401 - as nn.Module has them
        """The parameters, on their own device."""
        return self.placed.named_parameters(*args, **options)

    def named_buffers(self, *args: Any, **options: Any) -> Iterator[tuple[str, Tensor]]:  # noqa: ANN401
        """The buffers, on their own device."""
        return self.placed.named_buffers(*args, **options)


class RemoteBlock(RemotePart, Block):
    """A block that computes on its own device, and returns tensors on the device of the entry."""

    placed: Block
    home: Home

    def forward(self, x: Stream, context: Context, tap: Tap = untouched) -> Stream:
        """Run each step in turn, on the device of the block."""
        return run(self.placed, self.home, x, context, tap).to(self.home.entry_device)

    def resume(
        self,
        restart: RestartPoint,
        state: Sequence[Tensor],
        context: Context,
        tap: Tap = untouched,
    ) -> Stream:
        """The stream after this block, continued on its device from an intermediate state."""
        device, restarts = device_of(self.placed), self.restart_points()
        index = next(n for n, point in enumerate(restarts) if _same(point, restart))
        x = self.placed.resume(
            self.placed.restart_points()[index],
            [tensor.to(device) for tensor in state],
            moved_context(context, device, self.home.owner_of),
            moved_tap(tap, self.home.entry_device),
        )
        return x.to(self.home.entry_device)

    def at_columns(
        self, x: Stream, columns: slice, context: Context
    ) -> Float[Tensor, "batch column d_model"]:
        """The stream after this block at some columns only, computed on the device of the block."""
        device = device_of(self.placed)
        context = moved_context(context, device, self.home.owner_of)
        return self.placed.at_columns(x.to(device), columns, context).to(self.home.entry_device)


def run(block: Block, home: Home, x: Stream, context: Context, tap: Tap) -> Stream:
    """The stream after a block, on the device of the block."""
    device = device_of(block)
    context = moved_context(context, device, home.owner_of)
    return block(x.to(device), context, moved_tap(tap, home.entry_device))


def device_of(part: nn.Module) -> torch.device:
    """The device of a part's weights."""
    return next(part.parameters()).device


def remote(block: Block, home: Home) -> RemoteBlock:
    """A block without weights that stands for ``block``."""
    weights = [*block.parameters(), *block.buffers()]
    made = copy.deepcopy(block, {id(weight): weight for weight in weights})
    parts = dict(block.named_modules(remove_duplicate=False))
    for name, part in list(made.named_modules()):
        names = tuple(
            key
            for key, weight in (*part._parameters.items(), *part._buffers.items())  # pyright: ignore[reportPrivateUsage]
            if weight is not None
        )
        for key in names:
            delattr(part, key)
        part.__class__ = _remote_class(RemotePart if name else RemoteBlock, type(part), names)
        # Not through nn.Module, which would make them parts of this part.
        vars(part).update(placed=parts[name], home=home)
    return cast("RemoteBlock", made)


@cache
def _remote_class(kind: type[Any], of: type[nn.Module], names: tuple[str, ...]) -> type[Any]:
    """The class of a remote part: ``kind``, then the class of the part that it stands for."""
    bases = (kind,) if issubclass(kind, of) else (kind, of)
    return type(of.__name__, bases, {name: property(partial(_moved, name)) for name in names})


def _moved(name: str, part: RemotePart) -> Tensor:
    """A weight on the device of the entry: the weight itself if it is there, else a copy."""
    return getattr(part.placed, name).to(part.home.entry_device)


def _same(point: RestartPoint, other: RestartPoint) -> bool:
    """Whether two restarts are the same place of two forms of a block."""
    return (point.first, point.state, point.next_step) == (
        other.first,
        other.state,
        other.next_step,
    )
