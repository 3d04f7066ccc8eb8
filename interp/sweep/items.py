"""Where does an edited forward part from the clean one? There it is entered, and no earlier.

Everything before the first edited place is as it was, so an edited forward begins at the last door
(see :class:`interp.model.block.Door`) that comes before it. An edit in the encoder of a pair
changes what the decoder reads: that one is entered where it first looks across.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from interp.edits import Edit
from interp.edits.reach import Freedom, first_column, freedom, of_rows
from interp.errors import InvalidEdit
from interp.model.block import Door
from interp.model.context import Batch
from interp.model.network import Network
from interp.model.stack import Stack
from interp.plan import listed
from interp.points import Place, Point

Planned = tuple[tuple[Place, Edit], ...]
"""Edits that are made together, each with its place."""


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


@dataclass(frozen=True, eq=False)
class Item:
    """Edits that are made together, and what follows from them.

    Attributes:
        index: which row of the result it fills.
        planned: the edits with their places.
        entrances: where each stack is entered, first stack first; ``None`` where it runs as it ran.
        freedom: how its batch may be taken apart.
    """

    index: int
    planned: Planned
    entrances: tuple[Entrance | None, ...]
    freedom: Freedom

    def first_column(self, model: Network, batches: Sequence[Batch]) -> int:
        """The first column that is computed anew, in every stack."""
        starts = [self._first_in(model, place, edit, batches[-1]) for place, edit in self.planned]
        return min(starts, default=0)

    def of_rows(self, rows: Sequence[int], n: int) -> Planned:
        """Its edits for some of the sweep's ``n`` prompts."""
        return tuple((place, of_rows(edit, place, rows, n)) for place, edit in self.planned)

    def _first_in(self, model: Network, place: Place, edit: Edit, batch: Batch) -> int:
        last = model.stacks[-1]
        elsewhere = place.stack is not None and place.stack != last.name
        if elsewhere or any(last.block(n).attn.mask.looks_ahead for n in range(len(last.blocks))):
            return 0
        return first_column(edit, batch)


def items_of(model: Network, edits: object) -> list[Item]:
    """The rows of a sweep, each checked against the model.

    Raises:
        UnknownPlace: the model has no such place.
        InvalidEdit: something that is no edit, or an axis that the point does not have.
    """
    rows = list(edits) if isinstance(edits, list | tuple) else listed(edits)
    if not rows:
        raise InvalidEdit("A sweep needs at least one edit; none was given.")
    finder = _Entrances(model)
    items: list[Item] = []
    for index, row in enumerate(rows):
        planned = tuple((finder.place_of(edit), edit) for edit in listed(row))
        least = min((freedom(edit, place) for place, edit in planned), default=Freedom.ANY)
        items.append(Item(index, planned, finder.of([place for place, _ in planned]), least))
    return items


class _Entrances:
    """Finds entrances; made once a model, since items are many."""

    def __init__(self, model: Network) -> None:
        self._model = model
        self._order = {place: number for number, place in enumerate(model.layout)}

    def place_of(self, edit: Edit) -> Place:
        place = self._model.atlas.find(edit.where)
        edit.select.per_axis(place)
        return place

    def of(self, places: list[Place]) -> tuple[Entrance | None, ...]:
        """Where each stack is entered if these places are edited."""
        entrances: list[Entrance | None] = []
        for number, stack in enumerate(self._model.stacks):
            own = [self._entrance(stack, place) for place in places if self._in(place, number)]
            if any(entrances):
                own.append(first_across(stack))
            if not own and number == len(self._model.stacks) - 1:
                own.append(Entrance(len(stack.blocks)))
            entrances.append(min(own, default=None))
        return tuple(entrances)

    def _in(self, place: Place, number: int) -> bool:
        stacks = self._model.stacks
        return (place.stack or stacks[-1].name) == stacks[number].name

    def _entrance(self, stack: Stack, place: Place) -> Entrance:
        if place.point in (Point.EMBED, Point.POS_EMBED):
            return ENTRY
        if place.layer is None:
            return Entrance(len(stack.blocks))
        own = [placed(door.first, place) for door in stack.block(place.layer).doors()]
        passed = [n for n, first in enumerate(own) if self._order[first] <= self._order[place]]
        return Entrance(place.layer, passed[-1])


def placed(inside: Place, block: Place) -> Place:
    """A place inside a block, as the model names it."""
    return Place(inside.point, block.layer, inside.norm, block.stack)


def first_across(stack: Stack) -> Entrance:
    """Where a stack first reads what the one before it gave out."""
    doors = stack.block(0).doors()
    across = [n for n, door in enumerate(doors) if door.first.point is Point.CROSS_ATTN_IN]
    return Entrance(0, across[0]) if across else ENTRY


def door_of(stack: Stack, entrance: Entrance) -> Door | None:
    """The door of an entrance; ``None`` at the entry and the exit of the stack."""
    if not 0 <= entrance.layer < len(stack.blocks):
        return None
    return stack.block(entrance.layer).doors()[entrance.door]


def needs_of(model: Network, number: int, entrance: Entrance) -> list[Place]:
    """The places whose clean tensors one enters with, in the stack of that number."""
    stack = model.stacks[number]
    name = stack.name if len(model.stacks) > 1 else None
    door = door_of(stack, entrance)
    if door is not None:
        return [
            placed(place, Place(place.point, entrance.layer, None, name)) for place in door.needs
        ]
    if entrance == ENTRY:
        return []
    return [placed(stack.end, Place(stack.end.point, len(stack.blocks) - 1, None, name))]
