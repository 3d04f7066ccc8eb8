"""Where can the forward of a model be entered, and what must be known to enter it there?

Found once a sweep, since a sweep has many edits: the doors of every block (see
:class:`interp.model.block.Door`), where each stack ends, and whose keys and values need not be
computed again.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from interp.model.attention.attention import Attention
from interp.model.door import Door
from interp.model.network import Network
from interp.points import ENTRY as ENTRY_POINTS
from interp.points import Place, Point


@dataclass(frozen=True, order=True)
class Entrance:
    """Where in a stack a forward begins: a door of a block.

    Attributes:
        layer: the block; −1 is the entry of the stack, the number of layers its exit.
        door: which of the block's doors.
    """

    layer: int
    door: int = 0


ENTRY = Entrance(-1)


class Ways:
    """The ways into a model. Stacks are called by their number, first stack first."""

    def __init__(self, model: Network) -> None:
        self.model = model
        self.last = len(model.stacks) - 1
        self._order = {place: number for number, place in enumerate(model.layout)}
        self._doors = [
            [stack.block(layer).doors() for layer in range(len(stack.blocks))]
            for stack in model.stacks
        ]
        self._ends = [stack.end for stack in model.stacks]
        self._outputs = [list(stack.final_norm.layout(stack.end)) for stack in model.stacks]

    def number_of(self, place: Place) -> int:
        """Which stack a place is in; the logits are the last one's."""
        if place.stack is None:
            return self.last
        return [stack.name for stack in self.model.stacks].index(place.stack)

    def entrances(self, places: Collection[Place]) -> tuple[Entrance | None, ...]:
        """Where each stack is entered if these places are edited; ``None``: it runs as it ran."""
        found: list[Entrance | None] = []
        for number in range(self.last + 1):
            own = [
                self._entrance(number, place) for place in places if self.number_of(place) == number
            ]
            if any(found):
                own.append(self._across(number))
            if not own and number == self.last:
                own.append(self.exit(number))
            found.append(min(own, default=None))
        return tuple(found)

    def exit(self, number: int) -> Entrance:
        """Behind the last block."""
        return Entrance(len(self._doors[number]))

    def door(self, number: int, entrance: Entrance) -> Door | None:
        """The door of an entrance; ``None`` at the entry and the exit."""
        if entrance == ENTRY or entrance == self.exit(number):
            return None
        return self._doors[number][entrance.layer][entrance.door]

    def needs(self, number: int, entrance: Entrance) -> list[Place]:
        """The places whose clean tensors one enters with."""
        door = self.door(number, entrance)
        if door is not None:
            return [self._placed(place, number, entrance.layer) for place in door.needs]
        return [] if entrance == ENTRY else [self.end(number)]

    def end(self, number: int) -> Place:
        """Where the stream after the last block is."""
        return self._placed(self._ends[number], number, len(self._doors[number]) - 1)

    def output(self, number: int) -> Place:
        """Where what a stack gives out is."""
        if not self._outputs[number]:
            return self.end(number)
        return self._placed(self._outputs[number][-1], number, None)

    def mixes_no_more(self, entrance: Entrance) -> bool:
        """Whether no column of the last stack looks at another after an entrance."""
        block = self.model.stacks[-1].block(-1)
        door = self.door(self.last, entrance)
        if door is None:
            return entrance != ENTRY
        return entrance.layer == self.exit(self.last).layer - 1 and door.step > block.last_mix

    @cached_property
    def looks_ahead(self) -> bool:
        """Whether columns of the last stack see later ones."""
        stack = self.model.stacks[-1]
        return any(stack.block(n).attn.masking.mask.looks_ahead for n in range(len(stack.blocks)))

    @cached_property
    def recalled(self) -> list[list[tuple[Attention, Place, Place]]]:
        """Of each block of the last stack: its attentions, and where their keys and values are."""
        found: list[list[tuple[Attention, Place, Place]]] = []
        for layer in range(len(self._doors[-1])):
            parts = [
                part
                for part in self.model.stacks[-1].block(layer).children()
                if isinstance(part, Attention)
            ]
            placed = [
                (part, *(self._placed(Place(point), self.last, layer) for point in part.recalled))
                for part in parts
            ]
            found.append([(part, key, value) for part, key, value in placed])
        return found

    def _entrance(self, number: int, place: Place) -> Entrance:
        if place.point in ENTRY_POINTS:
            return ENTRY
        if place.layer is None:
            return self.exit(number)
        firsts = [
            self._order[self._placed(door.first, number, place.layer)]
            for door in self._doors[number][place.layer]
        ]
        passed = [door for door, first in enumerate(firsts) if first <= self._order[place]]
        return Entrance(place.layer, passed[-1])

    def _across(self, number: int) -> Entrance:
        """Where a stack first reads what the one before it gave out."""
        firsts = [door.first.point for door in self._doors[number][0]]
        return Entrance(0, firsts.index(Point.CROSS_ATTN_IN))

    def _name(self, number: int) -> str | None:
        return self.model.stacks[number].name if self.last > 0 else None

    def _placed(self, inside: Place, number: int, layer: int | None) -> Place:
        """A place inside a block or at an exit, as the model names it."""
        return Place(inside.point, layer, inside.norm, self._name(number))
