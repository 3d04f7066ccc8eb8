"""What is one row of a sweep? Edits that are made together, and where their forward begins.

Everything before the first edited place is as it was, so an edited forward begins at the last door
that comes before it. An edit in the encoder of a pair changes what the decoder reads: that one is
entered where it first looks across.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from interp.edits import Edit
from interp.edits.scope import BatchSplit, batch_split, first_changed_column, for_rows
from interp.errors import InvalidEdit
from interp.execution.plan import listed
from interp.model.batch import Batch
from interp.points import Place
from interp.sweeps.restart import Entrance, Ways

Planned = tuple[tuple[Place, Edit], ...]
"""Edits that are made together, each with its place."""


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
    freedom: BatchSplit

    def __str__(self) -> str:
        if not self.planned:
            return "Without an edit"
        told = " and ".join(f"{edit.kind} at {place}" for place, edit in self.planned)
        return f"Edit {self.index} ({told})"

    def first_column(self, ways: Ways, batches: Sequence[Batch]) -> int:
        """The first column of the last stack that is computed anew."""
        elsewhere = any(ways.number_of(place) < ways.last for place, _ in self.planned)
        if ways.looks_ahead or elsewhere:
            return 0
        return min((first_changed_column(edit, batches[-1]) for _, edit in self.planned), default=0)

    def of_rows(self, rows: Sequence[int], n: int) -> Planned:
        """Its edits for some of the sweep's ``n`` prompts."""
        return tuple((place, for_rows(edit, place, rows, n)) for place, edit in self.planned)


def items_of(ways: Ways, edits: object) -> list[Item]:
    """The rows of a sweep, each checked against the model.

    Raises:
        UnknownPlace: the model has no such place.
        InvalidEdit: something that is no edit, or an axis that the point does not have.
    """
    rows = list(edits) if isinstance(edits, list | tuple) else listed(edits)
    if not rows:
        raise InvalidEdit("A sweep needs at least one edit; none was given.")
    items: list[Item] = []
    for index, row in enumerate(rows):
        planned = tuple((_place_of(ways, edit), edit) for edit in listed(row))
        least = min(
            (batch_split(edit, place) for place, edit in planned),
            default=BatchSplit.ROWS_REPADDED,
        )
        items.append(Item(index, planned, ways.entrances([place for place, _ in planned]), least))
    return items


def _place_of(ways: Ways, edit: Edit) -> Place:
    place = ways.model.atlas.find(edit.where)
    edit.select.per_axis(place)
    return place
