"""The cases of a sweep: edits that are applied together, and where their forward restarts.

Before the first edited place nothing differs from the baseline, so an edited forward restarts at
the latest restart point before it. An edit in the encoder changes the input of cross-attention, so
the decoder restarts at its first cross-attention.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from interp.edits import BatchSplit, Edit, batch_split, first_changed_column, for_rows
from interp.errors import InvalidEdit
from interp.execution import as_edits, place_edits, resolve_edits
from interp.model import Batch, Network
from interp.points import Place
from interp.sweeps.restart_map import Restart, RestartMap

PlacedEdits = tuple[tuple[Place, Edit], ...]
SHOWN = 3
"""Maximum number of edits of a case that a message names."""


@dataclass(frozen=True, eq=False)
class Case:
    """Edits that are applied together.

    Attributes:
        index: its row in the result.
        edits: the edits with their places.
        restarts: where each stack restarts; ``None`` for a stack that the edits do not change.
        split: how its batch may be split.
    """

    index: int
    edits: PlacedEdits
    restarts: tuple[Restart | None, ...]
    split: BatchSplit

    def __str__(self) -> str:
        return label_of(self.index, self.edits)

    def first_column(self, restart_map: RestartMap, batches: Sequence[Batch]) -> int:
        """The first column of the last stack that differs from the baseline."""
        elsewhere = any(restart_map.stack_of(place) < restart_map.last for place, _ in self.edits)
        if restart_map.is_bidirectional or elsewhere:
            return 0
        last = batches[-1]
        return min((first_changed_column(edit, at, last) for at, edit in self.edits), default=0)

    @property
    def earlier(self) -> set[Place]:
        """The places whose tensors are read by its edits, other than those that they change."""
        return {place for _, edit in self.edits for place in edit.earlier}

    def for_rows(self, rows: Sequence[int], n: int) -> PlacedEdits:
        """The edits restricted to some of the sweep's ``n`` prompts."""
        return tuple((place, for_rows(edit, place, rows, n)) for place, edit in self.edits)


def label_of(index: int, edits: PlacedEdits) -> str:
    """The name of a case in messages."""
    shown = [f"{edit.kind} at {place}" for place, edit in edits[:SHOWN]]
    more = [f"{len(edits) - SHOWN} more"] if len(edits) > SHOWN else []
    return f"Edit {index} ({' and '.join([*shown, *more])})"


def cases_of(restart_map: RestartMap, edits: object) -> list[Case]:
    """The cases of a sweep, each checked against the model.

    Raises:
        UnknownPlace: the model has no such place.
        InvalidEdit: an element is not an edit, an edit selects on an axis that the point does not
            have, or it has no effect because another overwrites it.
    """
    rows = list(edits) if isinstance(edits, list | tuple) else as_edits(edits)
    if not rows:
        raise InvalidEdit("A sweep needs at least one edit; none was given.")
    cases: list[Case] = []
    for index, row in enumerate(rows):
        placed = placed_in(restart_map.model, as_edits(row))
        splits = (batch_split(edit, place) for place, edit in placed)
        split = min(splits, default=BatchSplit.ROWS_REPADDED)
        restarts = restart_map.restarts([place for place, _ in placed])
        cases.append(Case(index, placed, restarts, split))
    return cases


def placed_in(model: Network, edits: Sequence[Edit]) -> PlacedEdits:
    """Edits that are applied together, with their places; checked as the edits of a run are."""
    place_edits(model, edits, model.layout)
    return tuple(resolve_edits(model, edits))
