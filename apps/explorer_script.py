"""The explorer's script, which Streamlit runs at every interaction.

Model and prompt stand at the side, the prediction above, one of five pages below; a page's views
are a fragment, so that a click reruns them only. The script stands outside :mod:`apps.explorer`,
since Streamlit takes a folder ``pages`` beside its script for pages of its own.
"""

import argparse
from dataclasses import fields, replace

import streamlit as st

from apps.explorer.canvas import load_components
from apps.explorer.controls import choose
from apps.explorer.default_views import default_view
from apps.explorer.messages import errors_on_page, escape_markdown
from apps.explorer.navigation import PAGES
from apps.explorer.offered import is_offered, model_of, offer, offered
from apps.explorer.page import show
from apps.explorer.prediction import show_prediction
from apps.explorer.sidebar import metric_choice, model_choice, prompt_form, set_choice
from apps.explorer.state import change, current, outer, read_address, write_address
from apps.explorer.validate import validated, within_context
from apps.explorer.view import DEFAULT, View
from interp.errors import shorten

STYLE = """<style>
[data-testid=stMainBlockContainer] { padding: 2.6rem 2rem 4rem; }
@media (max-width: 640px) { [data-testid=stMainBlockContainer] { padding: 4.4rem 1rem 4rem; } }
[data-testid=stSidebarHeader] { height: 2.4rem; padding-bottom: 0; margin-bottom: 0; }
[data-testid=stSidebarUserContent] { padding-top: 0; }
[class*=st-key-interp_parts] { display: none; }
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
        view = replace(default_view(view.model), **_given(view))
    view, lacking = validated(view, model_of(view.model))
    return view, (*notes, *lacking)


def _given(view: View) -> dict[str, object]:
    """The fields that an address without a prompt says, all but those of the prompt."""
    given = {field.name: getattr(view, field.name) for field in fields(view)}
    return {name: own for name, own in given.items() if own != getattr(DEFAULT, name)}


def cut_prompt() -> tuple[str, ...]:
    """Cut what exceeds the model's context; the words for it, as long as that prompt stands."""
    view, notes = within_context(current(), model_of(current().model))
    if notes:
        change(view)
        st.session_state["cut"] = view.text, notes
    text, said = st.session_state.get("cut", ("", ()))
    return said if text == view.text else ()


def page() -> None:
    """Show everything."""
    st.set_page_config("interp explorer", layout="wide")
    st.html(STYLE)
    load_components()
    offer(named_models())
    with errors_on_page():
        # What may be empty has a container, so that what follows keeps its place and its state.
        with st.container():
            for note in (*read_address(completed), *cut_prompt()):
                st.warning(escape_markdown(note))
        with st.sidebar:
            model_choice()
            with errors_on_page():
                prompt_form(model_of(current().model))
            with errors_on_page():
                set_choice()
                metric_choice()
        choose("Page", "page", [*PAGES], words=lambda name: PAGES[name].title, has_label=False)
        view = current()
        st.session_state["outer"] = outer(view)
        with st.container(), errors_on_page():
            show_prediction(view, model_of(view.model))
        with st.container():
            show(PAGES[view.page])
    if "view" in st.session_state:
        write_address()


page()
