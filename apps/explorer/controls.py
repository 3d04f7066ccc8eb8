"""Streamlit's widgets for single fields of the view."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from apps.explorer.state import change, current

WIDTH = 220
"""Of a list or a line of text, in pixels."""


def choose(  # noqa: PLR0913 - of a widget
    label: str,
    field: str,
    options: Sequence[Any],
    *,
    words: Callable[[Any], str] = str,
    widget: str = "segmented_control",
    help: str | None = None,
    has_label: bool = True,
) -> None:
    """A widget that chooses the value of one field of the view among some.

    Args:
        label: shown at the widget.
        field: of the view; a value that is no option becomes the first.
        options: what may be chosen.
        words: how an option is shown.
        widget: ``segmented_control`` or ``selectbox``.
        help: shown at a question mark.
        has_label: whether the label is seen, or only read aloud.
    """
    value = getattr(current(), field)
    if value not in options:
        value = options[0]
        change(**{field: value})
    key = f"choose_{field}"
    st.session_state[key] = value
    # One segment always holds.
    more = {"required": True} if widget == "segmented_control" else {"width": WIDTH}
    getattr(st, widget)(
        label,
        options,
        key=key,
        format_func=words,
        on_change=_take,
        args=(field, key),
        help=help,
        label_visibility="visible" if has_label else "collapsed",
        **more,
    )


def write(label: str, field: str, *, help: str | None = None) -> None:
    """A line of text for a field of the view."""
    key = f"write_{field}"
    st.session_state[key] = getattr(current(), field)
    st.text_input(label, key=key, on_change=_take, args=(field, key), help=help, width=WIDTH)


def switch(label: str, field: str, *, help: str | None = None) -> None:
    """A switch for a field that is true or false."""
    key = f"switch_{field}"
    st.session_state[key] = getattr(current(), field)
    st.toggle(label, key=key, on_change=_take, args=(field, key), help=help)


def ask_switch(label: str, name: str, *, help: str | None = None) -> None:
    """A switch for a long analysis, which is asked for by its name."""
    key = f"ask_{name}"
    st.session_state[key] = name in current().asked
    st.toggle(label, key=key, on_change=_ask, args=(name, key), help=help)


def _ask(name: str, key: str) -> None:
    others = tuple(own for own in current().asked if own != name)
    change(asked=(*others, name) if st.session_state[key] else others)


def _take(field: str, key: str) -> None:
    change(**{field: st.session_state[key]})


def number(label: str, field: str, ends: tuple[float, float], value: float | None = None) -> None:
    """A number between two ends for a field of the view; whole if the ends are.

    Args:
        label: shown at the widget.
        field: of the view.
        ends: least and largest.
        value: shown in place of the field's own, which may be ``None``.
    """
    key = f"number_{field}"
    st.session_state[key] = getattr(current(), field) if value is None else value
    st.number_input(label, *ends, key=key, on_change=_take, args=(field, key), width=WIDTH)
