"""A sweep as text and tables: names of its edits, and the columns that describe them."""

from collections.abc import Sequence
from dataclasses import fields

from torch import Tensor

from interp.edits import Selection
from interp.sweeps.cases import PlacedEdits, label_of

FIRST = ("head", "pos")
SELECTED = tuple(field.name for field in fields(Selection) if field.name not in FIRST)
OPTIONAL = (*SELECTED, "norm", "stack")
"""Columns that most sweeps do not need."""
SHOWN = 4
"""Maximum number of edits, and of prompts per edit, that a note lists."""


def columns_of(edits: PlacedEdits) -> dict[str, object]:
    """The columns that describe edits applied together; indices are as given by the caller."""
    places = [place for place, _ in edits]
    selected = {
        name: joined([getattr(edit.select, name) for _, edit in edits])
        for name in (*FIRST, *SELECTED)
    }
    return {
        "kind": " + ".join(edit.kind for _, edit in edits),
        "where": " + ".join(",".join(map(str, edit.where)) for _, edit in edits),
        "point": joined([place.point.label for place in places]),
        "layer": joined([place.layer for place in places]),
        **selected,
        "norm": joined([place.norm for place in places]),
        "stack": joined([place.stack for place in places]),
    }


def joined(values: Sequence[object]) -> object:
    """The value of a single edit, or the values of several joined as text (``-`` for ``None``)."""
    if len(values) == 1:
        return values[0]
    if all(value is None for value in values):
        return None
    return " + ".join("-" if value is None else str(value) for value in values)


def nan_note(values: Tensor, done: Tensor, placed: Sequence[PlacedEdits]) -> str | None:
    """A note on the computed cells ``[edit prompt]`` that are NaN; ``None`` if none is."""
    nan = values.isnan() & done
    edits = nan.any(1).nonzero()[:, 0].tolist()
    if not edits:
        return None
    listed = [
        f"{label_of(edit, placed[edit])} on prompt {_listed(nan[edit].nonzero()[:, 0].tolist())}"
        for edit in edits[:SHOWN]
    ]
    more = f"; and {len(edits) - SHOWN} more edits" if len(edits) > SHOWN else ""
    return (
        f"The metric is NaN in {int(nan.sum())} cells: {'; '.join(listed)}{more}. There the edited "
        "logits hold NaN or infinity, or a function of them gives NaN."
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:SHOWN])) + (", …" if len(numbers) > SHOWN else "")
