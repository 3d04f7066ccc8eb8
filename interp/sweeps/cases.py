"""The cases of a sweep: edits that are made together, and where their forward restarts.

Before the first edited place nothing differs from the baseline, so an edited forward restarts at
the latest restart point before it. An edit in the encoder of a pair changes what the decoder reads:
the decoder restarts at its first cross-attention.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from interp.edits import Edit
from interp.edits.scope import BatchSplit, batch_split, first_changed_column, for_rows
from interp.errors import InvalidEdit
from interp.execution.plan import as_edits
from interp.model.batch import Batch
from interp.points import Place
from interp.sweeps.restart_map import Restart, RestartMap

PlacedEdits = tuple[tuple[Place, Edit], ...]


@dataclass(frozen=True, eq=False)
class Case:
    """Edits that are made together.

    Attributes:
        index: the row of the result that it fills.
        edits: the edits with their places.
        restarts: where each stack restarts; ``None`` for a stack that the edits do not change.
        split: how its batch may be split.
    """

    index: int
    edits: PlacedEdits
    restarts: tuple[Restart | None, ...]
    split: BatchSplit

    def __str__(self) -> str:
        edits = " and ".join(f"{edit.kind} at {place}" for place, edit in self.edits)
        return f"Edit {self.index} ({edits})"

    def first_column(self, restart_map: RestartMap, batches: Sequence[Batch]) -> int:
        """The first column of the last stack that differs from the baseline."""
        elsewhere = any(restart_map.stack_of(place) < restart_map.last for place, _ in self.edits)
        if restart_map.is_bidirectional or elsewhere:
            return 0
        return min((first_changed_column(edit, batches[-1]) for _, edit in self.edits), default=0)

    def for_rows(self, rows: Sequence[int], n: int) -> PlacedEdits:
        """Its edits for some of the sweep's ``n`` prompts."""
        return tuple((place, for_rows(edit, place, rows, n)) for place, edit in self.edits)


def cases_of(restart_map: RestartMap, edits: object) -> list[Case]:
    """The cases of a sweep, each checked against the model.

    Raises:
        UnknownPlace: the model has no such place.
        InvalidEdit: something that is not an edit, or an axis that the point does not have.
    """
    rows = list(edits) if isinstance(edits, list | tuple) else as_edits(edits)
    if not rows:
        raise InvalidEdit("A sweep needs at least one edit; none was given.")
    cases: list[Case] = []
    for index, row in enumerate(rows):
        placed = tuple((_place_of(restart_map, edit), edit) for edit in as_edits(row))
        splits = (batch_split(edit, place) for place, edit in placed)
        split = min(splits, default=BatchSplit.ROWS_REPADDED)
        restarts = restart_map.restarts([place for place, _ in placed])
        cases.append(Case(index, placed, restarts, split))
    return cases


def _place_of(restart_map: RestartMap, edit: Edit) -> Place:
    place = restart_map.model.names.resolve(edit.where)
    edit.select.per_axis(place)
    return place
