"""The explorer's script, which Streamlit runs at every interaction.

Model and prompt are in the sidebar, the prediction is at the top, and one of the pages below it. A
page's views are a fragment, so that a click reruns only them. The script is outside
:mod:`apps.explorer`, because Streamlit treats a folder ``pages`` beside its script as its own.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from apps.explorer.canvas import load_components
from apps.explorer.controls import choose
from apps.explorer.links import completed
from apps.explorer.messages import errors_on_page, escape_markdown
from apps.explorer.navigation import PAGES, pages
from apps.explorer.offered import model_of, name_of, offer, offer_dictionaries, offered
from apps.explorer.opened import open_reports
from apps.explorer.page import JOBS, cancel_others, show, show_waiting
from apps.explorer.pages.story import STORY
from apps.explorer.pages.view_inputs import prompt_problem
from apps.explorer.prediction import forwards_first, show_prediction
from apps.explorer.sidebar import metric_choice, model_choice, prompt_form, set_choice
from apps.explorer.state import change, current, outer, read_address, write_address
from apps.explorer.store import limit_to
from apps.explorer.story_panel import show_story, story_panel
from apps.explorer.validate import within_context

STYLE = """<style>
[data-testid=stMainBlockContainer] { padding: 2.6rem 2rem 4rem; }
@media (max-width: 640px) { [data-testid=stMainBlockContainer] { padding: 4.4rem 1rem 4rem; } }
[data-testid=stSidebarHeader] { height: 2.4rem; padding-bottom: 0; margin-bottom: 0; }
[data-testid=stSidebarUserContent] { padding-top: 0; }
[class*=st-key-interp_parts] { display: none; }
/* The progress of jobs, in view at the lower edge: nothing moves when a job starts or ends. */
[data-testid=stLayoutWrapper]:has(> .st-key-interp_progress) { position: sticky; bottom: 0;
  z-index: 40; padding: 0.2rem 0; background: Canvas; }
.st-key-interp_progress > * > [data-testid=stHorizontalBlock] > * { flex: 1 1 320px; min-width: 0; }
.st-key-interp_progress > * > * > * > [data-testid=stHorizontalBlock] { flex-wrap: nowrap; }
/* In place of Streamlit's message about a server that has stopped, apps/widget/mount_health.js. */
body[data-interp-stopped] [data-testid=stDialog] { display: none; }
/* The label of a clicked Cancel changes at once, before the server answers. */
[class*=st-key-cancel_] button:focus:not(:focus-visible) p { font-size: 0; }
[class*=st-key-cancel_] button:focus:not(:focus-visible) p::after {
  content: "cancelling…"; font-size: 1rem; }
</style>"""


def arguments() -> argparse.Namespace:
    """The models, the reports and the budget that were given on the command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--dictionary", action="append", default=[])
    parser.add_argument("--results", action="append", default=[], type=Path)
    parser.add_argument("--memory", type=int)
    return parser.parse_known_args()[0]


def notes() -> tuple[str, ...]:
    """Problems with the address or the prompt, shown while page, model and prompt stay the same."""
    first = next(iter([*map(name_of, arguments().model), *offered()]))
    fresh = [*read_address(lambda view: completed(view, first))]
    view, cut = within_context(current(), model_of(current().model))
    if cut:
        change(view)
    place = view.page, view.model, view.text
    last_place, last = st.session_state.get("notes", (None, ()))
    messages = tuple(dict.fromkeys([*(last if last_place == place else ()), *fresh, *cut]))
    st.session_state["notes"] = place, messages
    return messages


def sidebar(fields: Sequence[str]) -> None:
    """Show the sidebar, with these fields of sweeps."""
    with st.sidebar:
        model_choice()
        with errors_on_page():
            prompt_form(model_of(current().model))
        with errors_on_page():
            if "prompts" in fields:
                set_choice()
            if "metric" in fields:
                metric_choice()


def page() -> None:
    """Show the whole page."""
    st.set_page_config("interp explorer", layout="wide")
    st.html(STYLE)
    load_components()
    offer(arguments().model)
    offer_dictionaries(arguments().dictionary)
    open_reports(arguments().results)
    limit_to(arguments().memory)
    with errors_on_page():
        # Elements that may be empty are in a container, so that those below keep their state.
        with st.container():
            for note in notes():
                st.warning(escape_markdown(note))
        problem = prompt_problem(current(), model_of(current().model))
        first = {} if problem else forwards_first(current())
        waits = not all(map(JOBS.is_settled, first.values()))
        sidebar(() if problem or waits else PAGES[current().page].sidebar)
        story_panel()
        titles = {name: PAGES[name].title for name in pages()}
        choose("Page", "page", [*titles], format_func=titles.__getitem__, show_label=False)
        view = current()
        st.session_state["outer"] = outer(view)
        shows_views = not (problem and PAGES[view.page].reads_prompt)
        with st.container(), errors_on_page():
            if not (problem or waits or view.page == STORY.name):
                show_prediction(view)
            elif not shows_views:
                st.info(escape_markdown(problem))
        with st.container():
            if waits and PAGES[view.page].reads_prompt:
                show_waiting(first)
            elif view.page == STORY.name:
                show_story()
            elif shows_views:
                show(PAGES[view.page])
            else:
                cancel_others(set())
    if "view" in st.session_state:
        write_address()


page()
