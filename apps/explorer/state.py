"""The session's view: read from the address, changed by widgets and clicks, written back.

The address wins when it differs from the last one that was written, which is what Back does.
Nothing is written on the first visit, since that would cost a press of Back.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import streamlit as st

from apps.explorer.view import View, from_address

OUTER = (
    *("page", "model", "text", "target", "distractor", "corrupt", "prefix", "hidden", "position"),
    *("heads", "ablated", "pinned"),
)
"""Fields that what stands around a page's views depends on."""


def current() -> View:
    """The view of this session."""
    return st.session_state["view"]


def change(view: View | None = None, **fields: Any) -> None:  # noqa: ANN401 - fields of a view
    """Take another view, or other fields of this one."""
    st.session_state["view"] = replace(view or current(), **fields)
    st.session_state["by_us"] = True


def rerun() -> NoReturn:
    """Run the whole script anew."""
    st.session_state["by_us"] = True
    st.rerun()


def read_address(complete: Callable[[View], tuple[View, tuple[str, ...]]]) -> tuple[str, ...]:
    """Take the address's view, if it is not the one that was written.

    Args:
        complete: fills in what an address leaves out; gives also what had to be left out.

    Returns:
        A line for each thing that could not be read or taken.
    """
    state, address = st.session_state, st.query_params.to_dict()
    # A click may come with the address that was shown when it was made: that is no Back.
    by_us = state.pop("by_us", False)
    if "view" in state and (by_us or address == state["address"]):
        return ()
    asked, notes = from_address(address)
    view, more = complete(asked)
    state["view"], state["address"], state["written"] = view, address, view
    return (*notes, *more)


def write_address() -> None:
    """Write the view to the address if it has changed; the browser's history has one entry more."""
    state, view = st.session_state, current()
    state["by_us"] = False
    if state["written"] == view:
        return
    address = view.to_address()
    if address != state["address"]:
        st.query_params.from_dict(address)
    state["address"], state["written"] = address, view


def address_differs() -> bool:
    """Whether the address is another one than was written."""
    return st.query_params.to_dict() != st.session_state.get("address")


def went_back() -> bool:
    """Whether the address is another one than was written, at two looks one after the other.

    At one look it may be that of a message that was under way while the address was written.
    """
    state, differs = st.session_state, address_differs()
    state["differed"], before = differs, state.get("differed", False)
    return differs and before


def outer(view: View) -> tuple[object, ...]:
    """What decides whether more than a page's own views has to be shown anew."""
    edited = (view.method, view.prompts, view.answered, view.attention) if view.ablated else ()
    return (*(getattr(view, name) for name in OUTER), edited)
