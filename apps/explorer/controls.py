"""Streamlit widgets for single fields of the view."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from apps.explorer.state import change, current

WIDTH = 220
"""Width of a list or a text field, in pixels."""


def key_of(name: str, value: object) -> str:
    """The key of a widget that shows a value; it changes when the value was changed elsewhere.

    The browser sends the state of every widget with each message. A message sent before Back or a
    click changed the value would otherwise look like a choice of the earlier value.
    """
    last_values = st.session_state.setdefault("widget_values", {})
    last, times = last_values.get(name, (value, 0))
    times += last != value
    last_values[name] = value, times
    key = _key(name, times)
    st.session_state[key] = value
    return key


def _key(name: str, times: int) -> str:
    return f"{name}_{times}" if times else name


def when_picked(name: str, key: str, then: Callable[[Any], None]) -> Callable[[], None]:
    """The callback of a widget, which calls a function with the value that a user chose.

    Streamlit also calls it for a widget whose key has changed, if a message that was sent before
    has its state, and the script was interrupted before it removed the widget. This is no choice.
    """

    def callback() -> None:
        last_values = st.session_state["widget_values"]
        _, times = last_values[name]
        if key == _key(name, times):
            last_values[name] = st.session_state[key], times
            then(st.session_state[key])

    return callback


def choose(  # noqa: PLR0913 - of a widget
    label: str,
    field: str,
    options: Sequence[Any],
    *,
    format_func: Callable[[Any], str] = str,
    widget: str = "segmented_control",
    help: str | None = None,
    show_label: bool = True,
    width: int = WIDTH,
) -> None:
    """A widget that chooses the value of one field of the view.

    Args:
        label: the label of the widget.
        field: the field of the view; a value that is not an option is set to the first option.
        options: the values to choose from.
        format_func: converts an option to the text that is shown.
        widget: ``segmented_control`` or ``selectbox``.
        help: the tooltip.
        show_label: whether the label is visible, or only for screen readers.
        width: width of a list, in pixels.
    """
    value = getattr(current(), field)
    if value not in options:
        value = options[0]
        change(**{field: value})
    name = f"choose_{field}"
    key = key_of(name, value)
    # One segment is always chosen.
    more = {"required": True} if widget == "segmented_control" else {"width": width}
    getattr(st, widget)(
        label,
        options,
        key=key,
        format_func=format_func,
        on_change=_when_picked(field, name, key),
        help=help,
        label_visibility="visible" if show_label else "collapsed",
        **more,
    )


def write(label: str, field: str, *, help: str | None = None) -> None:
    """A text field for a field of the view."""
    name = f"write_{field}"
    key = key_of(name, getattr(current(), field))
    st.text_input(label, key=key, on_change=_when_picked(field, name, key), help=help, width=WIDTH)


def switch(label: str, field: str, *, help: str | None = None) -> None:
    """A switch for a boolean field of the view."""
    name = f"switch_{field}"
    key = key_of(name, getattr(current(), field))
    st.toggle(label, key=key, on_change=_when_picked(field, name, key), help=help)


def ask_switch(label: str, name: str, *, help: str | None = None) -> None:
    """A switch that requests a long analysis by its name."""
    key = key_of(f"ask_{name}", name in current().asked)

    def store(is_asked: bool) -> None:  # noqa: FBT001 - the value of a widget
        others = tuple(question for question in current().asked if question != name)
        change(asked=(*others, name) if is_asked else others)

    st.toggle(label, key=key, on_change=when_picked(f"ask_{name}", key, store), help=help)


def _when_picked(field: str, name: str, key: str) -> Callable[[], None]:
    """The callback that stores the chosen value in a field of the view."""
    return when_picked(name, key, lambda value: change(**{field: value}))


def number(label: str, field: str, ends: tuple[float, float], value: float | None = None) -> None:
    """A number input for a field of the view; the number is whole if the ends are.

    Args:
        label: the label of the widget.
        field: the field of the view.
        ends: the smallest and the largest number.
        value: shown in place of the field's own value, which may be ``None``.
    """
    name = f"number_{field}"
    key = key_of(name, getattr(current(), field) if value is None else value)
    st.number_input(label, *ends, key=key, on_change=_when_picked(field, name, key), width=WIDTH)
