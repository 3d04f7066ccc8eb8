"""The explorer's script, which Streamlit runs at every interaction.

Model and prompt are in the sidebar, the prediction is at the top, and one of the pages below it. A
page's views are a fragment, so that a click reruns only them. The script is outside
:mod:`apps.explorer`, because Streamlit treats a folder ``pages`` beside its script as its own.
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


def arguments() -> argparse.Namespace:
    """The models and the reports that were given on the command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--results", action="append", default=[], type=Path)
    return parser.parse_known_args()[0]


def completed(view: View) -> tuple[View, tuple[str, ...]]:
    """Complete the view of an address with its model's defaults.

    Returns:
        The view, without what the model lacks, and a note on each thing that was left out.
    """
    notes: tuple[str, ...] = ()
    if view == DEFAULT and REPORT.name in pages():
        view = replace(view, page=REPORT.name)
    first = next(iter([*arguments().model, *offered()]))
    if not view.model:
        view = replace(view, model=first)
    if not is_offered(view.model):
        notes = (
            f"This link needs the model {shorten(view.model)}, which is not available here; "
            f"{first} is shown. To add models, start interp explore with --model.",
        )
        view = View(page=view.page, model=first)
    if view.page not in pages():
        notes = (
            *notes,
            "This link is to a report, but no report is open: start interp explore with --results.",
        )
        view = replace(view, page=DEFAULT.page)
    if view.page == REPORT.name:
        view = replace(view, report=report_of(view).name)
    if not view.text:
        view = replace(default_view(view.model), **_given(view))
    view, lacking = validated(view, model_of(view.model))
    return view, (*notes, *lacking)


def _given(view: View) -> dict[str, object]:
    """The fields of a view that differ from the defaults."""
    given = {field.name: getattr(view, field.name) for field in fields(view)}
    return {name: value for name, value in given.items() if value != getattr(DEFAULT, name)}


def notes() -> tuple[str, ...]:
    """Problems with the address or the prompt, shown while page, model and prompt stay the same."""
    fresh = [*read_address(completed)]
    view, cut = within_context(current(), model_of(current().model))
    if cut:
        change(view)
    place = view.page, view.model, view.text
    last_place, last = st.session_state.get("notes", (None, ()))
    shown = tuple(dict.fromkeys([*(last if last_place == place else ()), *fresh, *cut]))
    st.session_state["notes"] = place, shown
    return shown


def page() -> None:
    """Show the whole page."""
    st.set_page_config("interp explorer", layout="wide")
    st.html(STYLE)
    load_components()
    offer(arguments().model)
    open_reports(arguments().results)
    with errors_on_page():
        # Elements that may be empty are in a container, so that those below keep their state.
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
        titles = {name: PAGES[name].title for name in pages()}
        choose("Page", "page", [*titles], format_func=titles.__getitem__, show_label=False)
        view = current()
        st.session_state["outer"] = outer(view)
        with st.container(), errors_on_page():
            show_prediction(view, model_of(view.model))
        with st.container():
            show(PAGES[view.page])
    if "view" in st.session_state:
        write_address()


page()
