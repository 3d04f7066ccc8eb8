"""Streamlit's widgets for single fields of the view."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from apps.explorer.state import change, current

WIDTH = 220
"""Of a list or a line of text, in pixels."""


def key_of(name: str, value: object) -> str:
    """The key of a widget that shows a value: another one when the value was changed elsewhere.

    The browser sends the state of every widget with each message. One that was under way while
    Back or a click changed the value would be taken for a choice of the earlier value.
    """
    kept = st.session_state.setdefault("widget_values", {})
    last, times = kept.get(name, (value, 0))
    times += last != value
    kept[name] = value, times
    key = f"{name}_{times}" if times else name
    st.session_state[key] = value
    return key


def picked_value(name: str, key: str) -> Any:  # noqa: ANN401 - of a field
    """The value that a user gave to the widget of this name."""
    kept = st.session_state["widget_values"]
    kept[name] = st.session_state[key], kept[name][1]
    return st.session_state[key]


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
    name = f"choose_{field}"
    key = key_of(name, value)
    # One segment always holds.
    more = {"required": True} if widget == "segmented_control" else {"width": WIDTH}
    getattr(st, widget)(
        label,
        options,
        key=key,
        format_func=words,
        on_change=_take,
        args=(field, name, key),
        help=help,
        label_visibility="visible" if has_label else "collapsed",
        **more,
    )


def write(label: str, field: str, *, help: str | None = None) -> None:
    """A line of text for a field of the view."""
    name = f"write_{field}"
    key, args = key_of(name, getattr(current(), field)), (field, name)
    st.text_input(label, key=key, on_change=_take, args=(*args, key), help=help, width=WIDTH)


def switch(label: str, field: str, *, help: str | None = None) -> None:
    """A switch for a field that is true or false."""
    name = f"switch_{field}"
    key = key_of(name, getattr(current(), field))
    st.toggle(label, key=key, on_change=_take, args=(field, name, key), help=help)


def ask_switch(label: str, name: str, *, help: str | None = None) -> None:
    """A switch for a long analysis, which is asked for by its name."""
    key = key_of(f"ask_{name}", name in current().asked)
    st.toggle(label, key=key, on_change=_ask, args=(name, key), help=help)


def _ask(name: str, key: str) -> None:
    others = tuple(own for own in current().asked if own != name)
    change(asked=(*others, name) if picked_value(f"ask_{name}", key) else others)


def _take(field: str, name: str, key: str) -> None:
    change(**{field: picked_value(name, key)})


def number(label: str, field: str, ends: tuple[float, float], value: float | None = None) -> None:
    """A number between two ends for a field of the view; whole if the ends are.

    Args:
        label: shown at the widget.
        field: of the view.
        ends: least and largest.
        value: shown in place of the field's own, which may be ``None``.
    """
    name = f"number_{field}"
    key = key_of(name, getattr(current(), field) if value is None else value)
    st.number_input(label, *ends, key=key, on_change=_take, args=(field, name, key), width=WIDTH)
