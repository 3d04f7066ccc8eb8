"""The canvas widget on a page: views in, clicks out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st
from streamlit.components.v2 import component

from apps import widget
from apps.explorer.view import Head, View

ViewData = dict[str, Any]
"""What the widget draws, as plain data; see :mod:`apps.widget`."""
Pick = Mapping[str, Any]
"""What was clicked: ``view``, ``pick``; by its kind ``row``, ``column``, ``name``, ``heads``."""

_mount = component("interp_views", js=widget.bundle("streamlit"), css=widget.style())


def canvas(
    key: str,
    views: Sequence[ViewData],
    view: View,
    *,
    stale: Sequence[str] = (),
    on_pick: Callable[[Pick], None],
) -> None:
    """Mount views, which are linked with one another.

    Args:
        key: of the mount, the same at each run.
        views: what is drawn.
        view: whose selection is marked.
        stale: ids of views that are dimmed, since they belong to an earlier question.
        on_pick: called with what was clicked, before the page runs anew.
    """

    def picked() -> None:
        pick = st.session_state[key].get("picked")
        if pick:
            on_pick(pick)

    _mount(
        key=key,
        data={
            "views": list(views),
            "selection": selection(view),
            "meta": {"model": view.model, "prompt": view.text},
            "stale": list(stale),
        },
        on_picked_change=picked,
    )


def selection(view: View) -> dict[str, Any]:
    """The selection that all pages share, as the widget reads it."""
    return {
        "head": view.head and [*view.head],
        "heads": [[*head] for head in view.heads],
        "query": view.query,
        "key": view.key,
        "position": view.position,
    }


def with_selection(view: View, pick: Pick) -> dict[str, Any]:
    """The fields of the view that a selection or a collected set of the widget changes."""
    fields: dict[str, Any] = {}
    if pick.get("head") is not None:
        fields["head"] = Head(*pick["head"])
    if pick.get("heads") is not None:
        fields["heads"] = tuple(Head(*head) for head in pick["heads"])
    for name in ("query", "key", "position"):
        if name in pick:
            fields[name] = pick[name]
    return {name: value for name, value in fields.items() if value != getattr(view, name)}
