"""The explorer's script, which Streamlit runs at every interaction.

Model and prompt stand at the side, the prediction above, one of five pages below; a page's views
are a fragment, so that a click reruns them only.
"""

import argparse
from dataclasses import replace

import streamlit as st

from apps.explorer.controls import choose
from apps.explorer.default_views import default_view
from apps.explorer.fitted import fitted
from apps.explorer.messages import errors_on_page, escape_markdown
from apps.explorer.offered import is_offered, model_of, offer, offered
from apps.explorer.page import show
from apps.explorer.pages import PAGES
from apps.explorer.sidebar import model_choice, prompt_form, set_choice
from apps.explorer.state import change, current, mark_read, outer, read_address, write_address


def named_models() -> list[str]:
    """The models named on the command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", action="append", default=[])
    return parser.parse_known_args()[0].model


def take_address() -> tuple[str, ...]:
    """Take the view of the address; what it leaves out is the model's default."""
    notes = read_address()
    view = current()
    if not is_offered(view.model):
        name = next(iter([*named_models(), *offered()]))
        if view.model:
            notes = (*notes, f"The link names a model that is not offered: {view.model}.")
            view = replace(view, text="")
        view = replace(view, model=name)
    if not view.text:
        kept = {"page": view.page, "pinned": view.pinned}
        view = replace(default_view(view.model), **kept)
    view, more = fitted(view, model_of(view.model))
    change(view)
    mark_read()
    return (*notes, *more)


def page() -> None:
    """Show everything."""
    st.set_page_config("interp explorer", layout="wide")
    offer(named_models())
    with errors_on_page():
        for note in take_address():
            st.warning(escape_markdown(note))
        with st.sidebar:
            model_choice()
            with errors_on_page():
                prompt_form(model_of(current().model))
            set_choice()
        choose(
            "Page",
            "page",
            [*PAGES],
            words=lambda name: PAGES[name].title,
        )
        view = current()
        st.session_state["outer"] = outer(view)
        show(PAGES[view.page], view)
    if "view" in st.session_state:
        write_address()


page()
