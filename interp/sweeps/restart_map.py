"""The restart points of a whole model, and the tensors that each one needs.

They are built once per sweep from the restart points of every block (see
:mod:`interp.model.residual`).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from interp.model import Attention, Network, RestartPoint
from interp.points import Place, Point


@dataclass(frozen=True, order=True)
class Restart:
    """Where in a stack a forward starts.

    Attributes:
        layer: index of the block; −1 is the entry of the stack, and the number of layers its exit.
        index: index of the restart point in the block.
    """

    layer: int
    index: int = 0


ENTRY = Restart(-1)


class RestartMap:
    """The restart points of a model. Stacks are numbered in the order in which they run."""

    def __init__(self, model: Network) -> None:
        self.model = model
        self.last = len(model.stacks) - 1
        self._order = {place: number for number, place in enumerate(model.layout)}
        self._points = [
            [stack.block(layer).restart_points() for layer in range(len(stack.blocks))]
            for stack in model.stacks
        ]
        self._ends = [stack.end for stack in model.stacks]
        self._outputs = [list(stack.final_norm.layout(stack.end)) for stack in model.stacks]

    def stack_of(self, place: Place) -> int:
        """The index of the stack that a place is in; logits are in the last one."""
        if place.stack is None:
            return self.last
        return [stack.name for stack in self.model.stacks].index(place.stack)

    def restarts(self, places: Collection[Place]) -> tuple[Restart | None, ...]:
        """The latest restart of each stack before the first edited place.

        ``None`` for a stack that the edits do not change.
        """
        restarts: list[Restart | None] = []
        for number in range(self.last + 1):
            in_stack = [self._before(number, p) for p in places if self.stack_of(p) == number]
            if any(restarts):
                in_stack.append(self._first_cross_attention(number))
            if not in_stack and number == self.last:
                in_stack.append(self.exit(number))
            restarts.append(min(in_stack, default=None))
        return tuple(restarts)

    def passes(self, place: Place, restarts: Sequence[Restart | None]) -> bool:
        """Whether a forward with these restarts computes ``place``."""
        number = self.stack_of(place)
        restart = restarts[number]
        if restart is None or restart == self.exit(number):
            return False
        point = self.point(number, restart)
        first = None if point is None else self._in_model(point.first, number, restart.layer)
        return first is None or self._order[first] <= self._order[place]

    def exit(self, number: int) -> Restart:
        """The restart after the last block."""
        return Restart(len(self._points[number]))

    def point(self, number: int, restart: Restart) -> RestartPoint | None:
        """The block's restart point; ``None`` at the entry and the exit."""
        if restart == ENTRY or restart == self.exit(number):
            return None
        return self._points[number][restart.layer][restart.index]

    def state(self, number: int, restart: Restart) -> list[Place]:
        """The places whose baseline tensors a restart needs."""
        point = self.point(number, restart)
        if point is not None:
            return [self._in_model(place, number, restart.layer) for place in point.state]
        return [] if restart == ENTRY else [self.end(number)]

    def end(self, number: int) -> Place:
        """The place of the stream after the last block."""
        return self._in_model(self._ends[number], number, len(self._points[number]) - 1)

    def output(self, number: int) -> Place:
        """The place of a stack's output."""
        if not self._outputs[number]:
            return self.end(number)
        return self._in_model(self._outputs[number][-1], number, None)

    def mixes_positions(self, restart: Restart) -> bool:
        """Whether attention of the last stack is computed after a restart."""
        point = self.point(self.last, restart)
        if point is None:
            return restart == ENTRY
        return restart.layer < self.exit(self.last).layer - 1 or point.mixes_positions

    @cached_property
    def block_bytes(self) -> int:
        """Bytes of the weights of the last stack's first block."""
        return sum(weight.nbytes for weight in self.model.stacks[-1].block(0).parameters())

    @cached_property
    def is_bidirectional(self) -> bool:
        """Whether columns of the last stack attend to later columns."""
        stack = self.model.stacks[-1]
        masks = (stack.block(n).attn.masking.mask for n in range(len(stack.blocks)))
        return any(mask.is_bidirectional for mask in masks)

    @cached_property
    def kv_places(self) -> list[list[tuple[Attention, Place, Place]]]:
        """For each block of the last stack: its attentions, and the places of keys and values."""

        def placed(part: Attention, layer: int) -> tuple[Attention, Place, Place]:
            key, value = (self._in_model(Place(p), self.last, layer) for p in part.kv_points)
            return part, key, value

        blocks = [self.model.stacks[-1].block(n) for n in range(len(self._points[-1]))]
        return [
            [placed(part, n) for part in block.children() if isinstance(part, Attention)]
            for n, block in enumerate(blocks)
        ]

    def _before(self, number: int, place: Place) -> Restart:
        place = self.model.layout[place].reads_since or place
        if place.point.value.region == "entry":
            return ENTRY
        if place.layer is None:
            return self.exit(number)
        firsts = [
            self._order[self._in_model(point.first, number, place.layer)]
            for point in self._points[number][place.layer]
        ]
        passed = [index for index, first in enumerate(firsts) if first <= self._order[place]]
        return Restart(place.layer, passed[-1])

    def _first_cross_attention(self, number: int) -> Restart:
        """The restart at which a stack first reads the output of the stack before it."""
        firsts = [point.first.point for point in self._points[number][0]]
        return Restart(0, firsts.index(Point.CROSS_ATTN_IN))

    def _in_model(self, inside: Place, number: int, layer: int | None) -> Place:
        """The place in the whole model of a place inside a block or at an exit."""
        stack = self.model.stacks[number].name if self.last > 0 else None
        return Place(inside.point, layer, inside.norm, stack)
