"""The session's view: read from the address, changed by widgets and clicks, written back.

If the address differs from the one that was last written, as after Back, the address takes
precedence. Nothing is written on the first visit, since that would add an entry to the history.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from secrets import token_hex
from typing import Any, NoReturn

import streamlit as st

from apps.explorer.view import View, from_address

LAG = 1.0
"""Seconds for which an address must differ to be that of Back; the message of Back itself, which
reruns the whole script, usually comes first."""
OUTER = (
    *("page", "model", "text", "target", "distractor", "corrupt", "prefix", "hidden", "position"),
    *("chat", "heads", "ablated", "pinned", "subtract"),
)
"""Fields on which the parts of the page outside its views depend."""


def current() -> View:
    """The view of this session."""
    return st.session_state["view"]


def session_name() -> str:
    """A name of this session, by which jobs know who shows them."""
    return st.session_state.setdefault("session_name", token_hex(8))


def change(view: View | None = None, **fields: Any) -> None:  # noqa: ANN401 - fields of a view
    """Change to another view, or change fields of the current one."""
    st.session_state["view"] = replace(view or current(), **fields)
    st.session_state["changed_here"] = True


def rerun() -> NoReturn:
    """Rerun the whole script."""
    st.session_state["changed_here"] = True
    st.rerun()


def read_address(complete: Callable[[View], tuple[View, tuple[str, ...]]]) -> tuple[str, ...]:
    """Change to the view of the address, if the address is not the one that was last written.

    Args:
        complete: function that adds defaults to the view of an address, and also returns notes on
            what had to be left out.

    Returns:
        A note on each thing that could not be read or was left out.
    """
    state, address = st.session_state, st.query_params.to_dict()
    # A click may arrive with the address at the time of the click, which does not mean Back.
    changed_here = state.pop("changed_here", False)
    if "view" in state and (changed_here or address == state["address"]):
        return ()
    asked, notes = from_address(address)
    view, more = complete(asked)
    state["view"], state["address"], state["written"] = view, address, view
    state["received"] = True  # the browser has this address, so one that differs is of a later Back
    return (*notes, *more)


def write_address() -> None:
    """Write the view to the address if it has changed, which adds an entry to the history."""
    state, view = st.session_state, current()
    state["changed_here"] = False
    if state["written"] == view:
        return
    address = view.to_address()
    if address != state["address"]:
        st.query_params.from_dict(address)
        state["received"] = False
    state["address"], state["written"] = address, view


def address_differs() -> bool:
    """Whether the address differs from the one that was last written."""
    return st.query_params.to_dict() != st.session_state.get("address")


def went_back() -> bool:
    """Whether the address has differed for :data:`LAG` from the one that was last written.

    Until a message has the address that was last written, messages may have been sent before the
    browser received it. Messages arrive in order, so later ones that differ mean Back or Forward.
    To be called in a run that a message began: others have the address that the server wrote.
    """
    state, now = st.session_state, time.monotonic()
    if not address_differs():
        state["received"], state["differs_since"] = True, None
        return False
    if not state.get("received", True):
        return False
    since = state.get("differs_since")
    state["differs_since"] = now if since is None else since
    return since is not None and now - since >= LAG


def outer(view: View) -> tuple[object, ...]:
    """The values that determine whether more than a page's own views has to be redrawn."""
    edited = (view.method, view.prompts, view.answered, view.attention) if view.ablated else ()
    return (*(getattr(view, name) for name in OUTER), edited)
