"""Checks a click that the browser reports, since a browser can send any data."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from apps.explorer.canvas import Pick, ViewData
from interp.errors import InvalidInput, shorten

MAX_HEADS = 1024
"""Largest number of collected heads."""
OF_ALL = frozenset({"pin", "selection", "collect", "score", "contrast"})
"""Kinds of clicks that do not depend on what a view shows."""
NEEDED = {
    **{"score": ("name",), "contrast": ("x",), "x": ("x",)},
    **{"node": ("name",), "edge": ("name",), "head": ("row", "column")},
}
"""The values that a kind of click must have; others must have a row."""


def checked(pick: object, views: Sequence[ViewData]) -> Pick:
    """A click, if its values have their types and are inside one of the mounted views.

    Args:
        pick: what the browser sent.
        views: the views that are mounted.

    Raises:
        InvalidInput: it is not a click on one of these views.
    """
    if not isinstance(pick, dict):
        raise _refused(pick)
    values = cast(dict[str, Any], pick)
    wrong = next((name for name, is_valid in CHECKS.items() if not is_valid(values.get(name))), "")
    kind = values.get("pick")
    needed = () if kind in ("pin", "selection", "collect") else NEEDED.get(str(kind), ("row",))
    if wrong or kind is None or any(values.get(name) is None for name in needed):
        raise _refused(values)
    if kind not in OF_ALL:
        view = next(
            (candidate for candidate in views if candidate["id"] == values.get("view")), None
        )
        if view is None or kind not in _kinds(view) or not _is_inside(values, view):
            raise _refused(values)
    return values


def _refused(pick: object) -> InvalidInput:
    return InvalidInput(f"This click fits no view of the page, so it is ignored: {shorten(pick)}.")


def _kinds(view: ViewData) -> set[str | None]:
    """The kinds of clicks on a view."""
    of_kind = {"network": {"node"}, "heads": {"head"}}.get(view["kind"], set[str]())
    return {view.get("pick"), view.get("double"), *of_kind} - {None}


def _is_inside(values: Pick, view: ViewData) -> bool:
    """Whether the row and the column of a click are those of a view."""
    rows = {"matrix": "rows", "bars": "labels", "tokens": "tokens", "table": "rows"}
    ends = {
        "row": rows.get(view["kind"]),
        "column": "columns" if view["kind"] == "matrix" else None,
    }
    if view["kind"] == "matrix" and values.get("column") is None:
        return False
    return all(
        axis is None or (values.get(name) or 0) < len(view[axis]) for name, axis in ends.items()
    )


# ---- the types of the values -------------------------------------------------------------------


def _is_index(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)


def _is_text(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_number(value: object) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (is_real and math.isfinite(cast(float, value)))


def _is_head(value: object) -> bool:
    if not isinstance(value, list):
        return False
    pair = cast(list[object], value)
    return len(pair) == 2 and all(index is not None and _is_index(index) for index in pair)  # noqa: PLR2004


def _is_head_or_none(value: object) -> bool:
    return value is None or _is_head(value)


def _are_heads(value: object) -> bool:
    if not isinstance(value, list):
        return value is None
    heads = cast(list[object], value)
    return len(heads) <= MAX_HEADS and all(map(_is_head, heads))


CHECKS: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(("view", "pick", "name", "id"), _is_text),
    **dict.fromkeys(("row", "column", "query", "key", "position"), _is_index),
    "x": _is_number,
    "head": _is_head_or_none,
    "heads": _are_heads,
}
