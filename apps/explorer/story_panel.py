"""What shows and changes a story: the panel in the sidebar of every page, and the page Story."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast
from urllib.parse import urlsplit

import streamlit as st
from markupsafe import Markup
from streamlit.components.v2 import component

from analyses.results import counted
from apps import widget
from apps.explorer.canvas import canvas
from apps.explorer.controls import key_of, when_picked
from apps.explorer.downloads import NO_NAME
from apps.explorer.links import completed
from apps.explorer.messages import errors_on_page, escape_markdown
from apps.explorer.offered import is_local, is_offered
from apps.explorer.page import JOBS, Results, columns_of, rerun_if_outer_changed, show
from apps.explorer.pages.story import STORY, Drawn, asks_of_saved, story_of_session
from apps.explorer.prediction import STYLE
from apps.explorer.state import change, current, write_address
from apps.explorer.story import MAX_CHARACTERS, MAX_SENTENCE, MAX_TITLE, Saved, Story, read_story
from apps.explorer.view import View
from apps.explorer.watch import States, note_drawn
from apps.report import StorySection, story_page
from interp.errors import InterpError, InvalidInput, shorten

UNTITLED = "A story without a title"
COMPONENT = "story_file"
EMPTY = {
    "kind": "none",
    "id": "story",
    "title": "This story has no views yet",
    "reason": "Open another page, and add what it shows with Story in the sidebar; or open a file.",
}

_file = component("interp_story", js=widget.bundle("story"), css=widget.style())


def _store(story: Story, notes: Sequence[str] = ()) -> None:
    """Change the story of this session, and rerun the whole page, as the sidebar shows it too."""
    st.session_state["story"], st.session_state["story_notes"] = story, tuple(notes)
    st.session_state["outer"] = ()


# ---- the panel in the sidebar ------------------------------------------------------------------


def story_panel() -> None:
    """Show the form that adds the current view, and the button that opens a file."""
    story = story_of_session()
    label = f"Story: {counted(len(story.views), 'view')}" if story.views else "Story"
    with st.sidebar, st.expander(label, key="story_panel"):
        if current().page != STORY.name:
            with st.form("story_add", clear_on_submit=True, border=False):
                st.text_area(
                    "A sentence about this view",
                    key="story_sentence",
                    height=68,
                    max_chars=MAX_SENTENCE,
                    help="The page Story lists the saved views, and exports them with live figures "
                    "as one HTML file.",
                )
                st.form_submit_button("Add this view", width="stretch", on_click=_add)
        _file(
            key=COMPONENT,
            data={
                "text": story.to_json() if story.views else "",
                "begun": "story" in st.session_state,
                "most": MAX_CHARACTERS,
            },
            on_opened_change=_open_file,
        )
        for note in st.session_state.pop("story_notes", ()):
            st.caption(escape_markdown(note))


def _add() -> None:
    story, view = story_of_session(), current()
    try:
        story = story.with_view(view, st.session_state.get("story_sentence", ""))
    except InterpError as error:
        _store(story, [str(error)])
    else:
        _store(story, ["Added. The page Story shows and exports the story."])


def _open_file() -> None:
    """Read what the browser sent: the text of a file, or the story before a reload."""
    state = st.session_state.get(COMPONENT)
    sent: object = state.get("opened") if state else None
    if not isinstance(sent, dict):
        return
    values = cast(dict[str, Any], sent)
    if values.get("id") == st.session_state.get("story_opened"):
        return
    st.session_state["story_opened"] = values.get("id")
    try:
        story, notes = opened(values, current().model)
    except InterpError as error:
        _store(story_of_session(), [str(error)])
        return
    if values.get("restored") and story_of_session().views:
        return
    _store(story, notes)


def opened(sent: Mapping[str, Any], first: str) -> tuple[Story, tuple[str, ...]]:
    """The story of what the browser sent, completed for the models that are offered.

    Args:
        sent: the text of a file, and its size in bytes.
        first: the name of the model of links that name none.

    Raises:
        InvalidInput: it is not the file of a story, or too large for one.
    """
    text, size = sent.get("text"), sent.get("size")
    if not isinstance(text, str) or (isinstance(size, int) and size > 4 * MAX_CHARACTERS):
        raise InvalidInput(f"The file of a story has up to {MAX_CHARACTERS:,} characters.")
    story, notes = read_story(text)
    views, lacking = list[Saved](), list[str]()
    for n, saved in enumerate(story.views):
        if saved.view.model and not is_offered(saved.view.model):
            lacking.append(
                f"views[{n}].link: its model {shorten(saved.view.model)} is not available here, so "
                "it is left out. To add models, start interp explore with --model."
            )
            continue
        view, more = completed(saved.view, first)
        lacking += [f"views[{n}].link: {note}" for note in more]
        views.append(replace(saved, view=view))
    return replace(story, views=tuple(views)), (*notes, *lacking)


# ---- the page ----------------------------------------------------------------------------------


def show_story() -> None:
    """Show the page Story, with the progress of the jobs of all saved views."""
    show(STORY, lambda _page: _body())


def _body() -> None:
    rerun_if_outer_changed()
    with errors_on_page():
        story, states = story_of_session(), dict[str, object]()
        if not story.views:
            canvas("canvas_story_empty", [EMPTY], current(), on_pick=lambda _pick: None)
        else:
            key = key_of("story_title", story.title)
            retitle = when_picked("story_title", key, _retitle)
            st.text_input("Title", key=key, max_chars=MAX_TITLE, on_change=retitle)
            exports = st.container(horizontal=True, vertical_alignment="center")
            drawn = [_show_saved(n, saved, story, states) for n, saved in enumerate(story.views)]
            with exports:
                _show_exports(story, drawn)
        write_address()
        note_drawn(states)


def _retitle(title: str) -> None:
    _store(replace(story_of_session(), title=title))


def _show_exports(story: Story, drawn: Sequence[Drawn]) -> None:
    """The buttons that save the story: as a page, as vector figures, as a file to open again."""
    name = NO_NAME.sub("-", story.title).strip("-")[:60] or "story"
    sections = [each.section(explorer_address()) for each in drawn]
    make: Callable[[], str] = partial(exported, story, sections)
    st.download_button(
        "HTML page",
        make,
        f"{name}.html",
        key="story_html",
        on_click="ignore",
        help="One file with live figures, which opens anywhere without the explorer.",
    )
    st.download_button("JSON", story.to_json(), f"{name}.json", key="story_json", on_click="ignore")
    canvas("canvas_story_figures", [], current(), figures=name, on_pick=lambda _pick: None)
    waiting = sum(any("not all is computed" in note for note in each.notes) for each in drawn)
    if waiting:
        st.caption(f"{counted(waiting, 'view')} not computed completely yet; exports say so.")


def exported(story: Story, sections: Sequence[StorySection]) -> str:
    """The story as one HTML page."""
    return story_page(story.title or UNTITLED, sections)


def explorer_address() -> str:
    """The address of the explorer, without a query."""
    parts = urlsplit(str(st.context.url or ""))
    return f"{parts.scheme}://{parts.netloc}/" if parts.netloc else "/"


def _show_saved(n: int, saved: Saved, story: Story, states: States) -> Drawn:
    """Show a saved view: its sentence, what it shows, and the buttons that change the story."""
    columns: list[tuple[str, View, Results]] = []
    for name, view in columns_of(saved.view):
        answers = Results.of(asks_of_saved(view, saved.view.page), JOBS)
        states |= {f"{n + 1}{name} {job}": state for job, state in answers.states.items()}
        columns.append((name, view, answers))
    drawn = Drawn.of(saved, columns)
    with st.container(border=True, key=f"story_view_{n}"):
        key = key_of(f"story_sentence_{n}", saved.sentence)
        st.text_area(
            f"View {n + 1}",
            key=key,
            height=68,
            max_chars=MAX_SENTENCE,
            placeholder="a sentence about this view",
            on_change=when_picked(f"story_sentence_{n}", key, partial(_change_sentence, n)),
        )
        local = (
            "; from a local folder" if any(is_local(view.model) for _, view, _ in columns) else ""
        )
        st.caption(escape_markdown(f"{drawn.state}{local}"))
        if drawn.lines:
            st.html(str(STYLE + Markup("").join(drawn.lines)))
        _show_buttons(n, saved, story)
        for note in drawn.notes:
            st.caption(escape_markdown(note))
        places = st.columns(len(drawn.figures))
        states_drawn = drawn.columns[-len(drawn.figures) :]
        for side, (place, views, (view, _)) in enumerate(
            zip(places, drawn.figures, states_drawn, strict=True)
        ):
            with place:
                canvas(
                    f"canvas_story_{n}_{side}",
                    views,
                    view,
                    explores=False,
                    on_pick=lambda _pick: None,
                )
    return drawn


def _show_buttons(n: int, saved: Saved, story: Story) -> None:
    last = len(story.views) - 1
    buttons: dict[str, tuple[Callable[[], None], bool]] = {
        "Open": (lambda: change(saved.view), False),
        "Up": (lambda: _store(story.moved(n, -1)), n == 0),
        "Down": (lambda: _store(story.moved(n, 1)), n == last),
        "Remove": (lambda: _store(story.without(n)), False),
    }
    with st.container(horizontal=True):
        for label, (act, disabled) in buttons.items():
            st.button(label, key=f"story_{label}_{n}", on_click=act, disabled=disabled)


def _change_sentence(n: int, sentence: str) -> None:
    _store(story_of_session().with_sentence(n, sentence))
