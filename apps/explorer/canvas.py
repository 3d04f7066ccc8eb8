"""Mounts the canvas widget on a page: takes views, reports clicks."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

import streamlit as st
from streamlit.components.v2 import component

from apps import widget
from apps.explorer.view import Head, View

ViewData = dict[str, Any]
"""A view that the widget draws, as plain data; see :mod:`apps.widget`."""
Pick = Mapping[str, Any]
"""A click: the ``view``, the kind of click (``pick``) and an ``id``; depending on the kind also
``row``, ``column``, ``name``, ``heads``."""

LONGEST, LONGEST_FIELD = 8_000, 1_000
"""Characters up to which an encoded array, or a field of a view, is sent inside its view.

What is longer is sent apart, and only if the browser does not have it yet (see
``global.minCachedMessageSize`` in :mod:`apps.serve`).
"""
PARTS = "interp_parts"

_keep = component("interp_parts", js=widget.bundle("parts"))
_health = component("interp_health", js=widget.bundle("health"))
_code = component("interp_code", js=widget.bundle("code"))
_mount = component("interp_views", js=widget.bundle("streamlit"))


def load_components() -> None:
    """Mount the code of the widget, what watches the server, and a component without data.

    Streamlit sends a component with its script each time, so what draws views has one of its own,
    whose message stays the same. The browser loads it while results are computed, and shows views
    as soon as they arrive. Otherwise React would delay them by up to half a second.
    """
    with st.container(key=PARTS):
        _code(key=f"{PARTS}_code", data={"style": widget.style()})
        _keep(key=f"{PARTS}_none", data={"name": "", "part": None})
        _health(key=f"{PARTS}_health", data={})


def canvas(  # noqa: PLR0913 - settings by keyword
    key: str,
    views: Sequence[ViewData],
    view: View,
    *,
    stale: Sequence[str] = (),
    explores: bool = True,
    figures: str = "",
    on_pick: Callable[[object], None],
) -> None:
    """Mount views that share a selection.

    Args:
        key: the key of the mount, the same in each run.
        views: the views that are drawn.
        view: the view of the session, whose selection is marked.
        stale: ids of views that are dimmed, because they belong to an earlier question.
        explores: whether the views can be pinned, and the address is a link to them.
        figures: the name of the file of a button that saves all figures of the page; if empty,
            there is none.
        on_pick: called with what the browser sent for a click, before the page is rerun.
    """

    def picked() -> None:
        # A click may arrive when another page is already shown. If a message contains several
        # clicks, only the last is given, once for each of them.
        state = st.session_state.get(key)
        pick: object = state.get("picked") if state else None
        id_: object = cast(Pick, pick).get("id") if isinstance(pick, dict) else None
        if pick is not None and (id_ is None or id_ != st.session_state.get(f"picked_{key}")):
            st.session_state[f"picked_{key}"] = id_
            on_pick(pick)

    small, parts = fields_apart(views)
    _mount(
        key=key,
        data={
            "views": small,
            "selection": selection(view),
            "meta": {"model": view.model, "prompt": view.text},
            "stale": list(stale),
            "initially": {"heads": initially(view)},
            "explores": explores,
            "figures": figures,
        },
        on_picked_change=picked,
    )
    with st.container(key=f"{PARTS}_{key}"):
        for name, part in parts.items():
            _keep(key=f"{key}_{name}", data={"name": name, "part": part})


def fields_apart(views: Sequence[ViewData]) -> tuple[list[ViewData], dict[str, Any]]:
    """Replace long arrays and long fields of views by ``{"part": name}``, and return these by name.

    So a selection, after which the views are the same, or a field that has changed is sent alone.
    """
    small, parts = list[ViewData](), dict[str, Any]()
    for view in views:
        fields, arrays = apart(view)
        parts |= arrays
        for field, value in fields.items():
            text = json.dumps(value)
            if len(text) > LONGEST_FIELD:
                name = _name_of(text)
                parts[name], fields[field] = value, {"part": name}
        small.append(fields)
    return small, parts


def apart(value: Any) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401 - plain data
    """Replace long arrays in data by ``{"part": name}``, and return these arrays by name.

    The name is a hash of the contents, so that an array is sent once even if the view around it
    changes.
    """
    if isinstance(value, dict):
        entries = cast(dict[str, Any], value)
        if isinstance(entries.get("data"), str) and len(entries["data"]) > LONGEST:
            name = _name_of(f"{entries['dtype']}{entries['shape']}{entries['data']}")
            return {"part": name}, {name: entries}
        split = {name: apart(each) for name, each in entries.items()}
        return {name: each for name, (each, _) in split.items()}, _joined(split.values())
    if isinstance(value, list):
        each = [apart(item) for item in cast(list[Any], value)]
        return [item for item, _ in each], _joined(each)
    return value, {}


def _name_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:24]


def _joined(split: Iterable[tuple[Any, dict[str, Any]]]) -> dict[str, Any]:
    return {name: part for _, parts in split for name, part in parts.items()}


def initially(view: View) -> dict[str, Any]:
    """The initial state of the view ``heads``."""
    score = {"score": view.score} if view.score else {}
    return {**score, "contrast": view.contrast}


def selection(view: View) -> dict[str, Any]:
    """The selection that all pages share, in the form that the widget reads."""
    return {
        "head": view.head and [*view.head],
        "heads": [[*head] for head in view.heads],
        "query": view.query,
        "key": view.key,
        "position": view.position,
    }


def with_selection(view: View, pick: Pick) -> dict[str, Any]:
    """The fields of the session's view that a selection or a collected set changes.

    The key that a score is compared with is of one cell.
    """
    fields: dict[str, Any] = {}
    if pick.get("head") is not None:
        fields["head"] = Head(*pick["head"])
    if pick.get("heads") is not None:
        fields["heads"] = tuple(Head(*head) for head in pick["heads"])
    for name in ("query", "key", "position"):
        if name in pick:
            fields[name] = pick[name]
    if any(name in fields and fields[name] != getattr(view, name) for name in ("query", "key")):
        fields["other_key"] = None
    return {name: value for name, value in fields.items() if value != getattr(view, name)}
