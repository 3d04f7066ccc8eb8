"""The explorer's script, which Streamlit runs at every interaction.

Model and prompt stand at the side, the prediction above, one of the pages below; a page's views
are a fragment, so that a click reruns them only. The script stands outside :mod:`apps.explorer`,
since Streamlit takes a folder ``pages`` beside its script for pages of its own.
"""

import argparse
from dataclasses import fields, replace
from pathlib import Path

import streamlit as st

from apps.explorer.canvas import load_components
from apps.explorer.controls import choose
from apps.explorer.default_views import default_view
from apps.explorer.messages import errors_on_page, escape_markdown
from apps.explorer.navigation import PAGES, pages
from apps.explorer.offered import is_offered, model_of, offer, offered
from apps.explorer.opened import open_reports
from apps.explorer.page import show
from apps.explorer.pages.report import REPORT, report_of
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


def named() -> argparse.Namespace:
    """The models and the results that the command line named."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--results", action="append", default=[], type=Path)
    return parser.parse_known_args()[0]


def completed(view: View) -> tuple[View, tuple[str, ...]]:
    """A view of an address with its model's defaults; what the model lacks is left out and said."""
    said: tuple[str, ...] = ()
    if view == DEFAULT and REPORT.name in pages():
        view = replace(view, page=REPORT.name)
    first = next(iter([*named().model, *offered()]))
    if not view.model:
        view = replace(view, model=first)
    if not is_offered(view.model):
        said = (f"The link names {shorten(view.model)}, which is not offered; {first} is shown.",)
        view = View(page=view.page, model=first)
    if view.page not in pages():
        said = (*said, "The link is to a report, and none is open: interp explore --results.")
        view = replace(view, page=DEFAULT.page)
    if view.page == REPORT.name:
        view = replace(view, report=report_of(view).name)
    if not view.text:
        view = replace(default_view(view.model), **_given(view))
    view, lacking = validated(view, model_of(view.model))
    return view, (*said, *lacking)


def _given(view: View) -> dict[str, object]:
    """The fields that an address without a prompt says, all but those of the prompt."""
    given = {field.name: getattr(view, field.name) for field in fields(view)}
    return {name: own for name, own in given.items() if own != getattr(DEFAULT, name)}


def notes() -> tuple[str, ...]:
    """What was wrong with the address or the prompt, as long as that prompt is on that page."""
    fresh = [*read_address(completed)]
    view, cut = within_context(current(), model_of(current().model))
    if cut:
        change(view)
    place = view.page, view.model, view.text
    before, kept = st.session_state.get("notes", (None, ()))
    found = tuple(dict.fromkeys([*(kept if before == place else ()), *fresh, *cut]))
    st.session_state["notes"] = place, found
    return found


def page() -> None:
    """Show everything."""
    st.set_page_config("interp explorer", layout="wide")
    st.html(STYLE)
    load_components()
    offer(named().model)
    open_reports(named().results)
    with errors_on_page():
        # What may be empty has a container, so that what follows keeps its place and its state.
        with st.container():
            for note in notes():
                st.warning(escape_markdown(note))
        with st.sidebar:
            model_choice()
            with errors_on_page():
                prompt_form(model_of(current().model))
            with errors_on_page():
                used = PAGES[current().page].sidebar
                if "prompts" in used:
                    set_choice()
                if "metric" in used:
                    metric_choice()
        choose("Page", "page", pages(), words=lambda name: PAGES[name].title, has_label=False)
        view = current()
        st.session_state["outer"] = outer(view)
        with st.container(), errors_on_page():
            show_prediction(view, model_of(view.model))
        with st.container():
            show(PAGES[view.page])
    if "view" in st.session_state:
        write_address()


page()
