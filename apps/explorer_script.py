"""The explorer's script, which Streamlit runs at every interaction.

Model and prompt stand at the side, the prediction above, one of five pages below; a page's views
are a fragment, so that a click reruns them only. The script stands outside :mod:`apps.explorer`,
since Streamlit takes a folder ``pages`` beside its script for pages of its own.
"""

import argparse
from dataclasses import fields, replace

import streamlit as st

from apps.explorer.controls import choose
from apps.explorer.default_views import default_view
from apps.explorer.fitted import fitted
from apps.explorer.messages import errors_on_page, escape_markdown
from apps.explorer.offered import is_offered, model_of, offer, offered
from apps.explorer.page import show
from apps.explorer.pages import PAGES
from apps.explorer.sidebar import model_choice, prompt_form, set_choice
from apps.explorer.state import current, outer, read_address, write_address
from apps.explorer.view import DEFAULT, View
from interp.errors import shorten

STYLE = """<style>
[data-testid=stMainBlockContainer] { padding: 2.6rem 2rem 4rem; }
[data-testid=stSidebarHeader] { height: 2.4rem; padding-bottom: 0; margin-bottom: 0; }
[data-testid=stSidebarUserContent] { padding-top: 0; }
</style>"""


def named_models() -> list[str]:
    """The models named on the command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", action="append", default=[])
    return parser.parse_known_args()[0].model


def completed(view: View) -> tuple[View, tuple[str, ...]]:
    """A view of an address with its model's defaults; what the model lacks is left out and said."""
    notes: tuple[str, ...] = ()
    if not is_offered(view.model):
        name = next(iter([*named_models(), *offered()]))
        if view.model:
            notes = (
                f"The link names {shorten(view.model)}, which is not offered; {name} is shown.",
            )
        view = View(page=view.page, model=name)
    if not view.text:
        view = replace(default_view(view.model), **_chosen(view))
    view, lacking = fitted(view, model_of(view.model))
    return view, (*notes, *lacking)


def _chosen(view: View) -> dict[str, object]:
    """The fields that an address without a prompt says, all but those of the prompt."""
    given = {field.name: getattr(view, field.name) for field in fields(view)}
    return {name: own for name, own in given.items() if own != getattr(DEFAULT, name)}


def page() -> None:
    """Show everything."""
    st.set_page_config("interp explorer", layout="wide")
    st.html(STYLE)
    offer(named_models())
    with errors_on_page():
        for note in read_address(completed):
            st.warning(escape_markdown(note))
        with st.sidebar:
            model_choice()
            with errors_on_page():
                prompt_form(model_of(current().model))
            set_choice()
        choose("Page", "page", [*PAGES], words=lambda name: PAGES[name].title, has_label=False)
        view = current()
        st.session_state["outer"] = outer(view)
        show(PAGES[view.page], view)
    if "view" in st.session_state:
        write_address()


page()
