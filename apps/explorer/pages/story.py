"""The page Story: the questions of all saved views, and what is exported of their answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import streamlit as st
from markupsafe import Markup

import interp
from analyses import Predictions
from analyses.results import Result
from apps.explorer.canvas import ViewData, initially, selection
from apps.explorer.offered import is_local, model_of
from apps.explorer.page import (
    Ask,
    Page,
    Results,
    ask,
    asks_of,
    columns_of,
    described,
    drawn_columns,
)
from apps.explorer.pages.corpus import CORPUS
from apps.explorer.pages.graph import GRAPH_PAGE
from apps.explorer.pages.heads import HEADS
from apps.explorer.pages.patch import PATCH
from apps.explorer.pages.prompt import PROMPT
from apps.explorer.pages.report import REPORT
from apps.explorer.pages.weights import WEIGHTS
from apps.explorer.pages.why import WHY
from apps.explorer.prediction import line_of, prediction_question
from apps.explorer.story import Saved, Story
from apps.explorer.view import View
from apps.report import StoryFigures, StorySection
from interp import __version__

SAVED_PAGES = {
    page.name: page for page in (PROMPT, HEADS, WHY, GRAPH_PAGE, PATCH, WEIGHTS, CORPUS, REPORT)
}
"""The pages whose views can be saved."""
LINE = "prediction of the line"


def story_of_session() -> Story:
    """The story of this session."""
    return st.session_state.get("story", Story())


def asks(_view: View, _model: interp.Transformer) -> list[Ask]:
    """The questions of all saved views, whose names begin with the number of the view."""
    return [
        replace(request, name=f"{n}{name} {request.name}")
        for n, saved in enumerate(story_of_session().views, 1)
        for name, view in columns_of(saved.view)
        for request in asks_of_saved(view, saved.view.page)
    ]


def asks_of_saved(view: View, page: str) -> list[Ask]:
    """The questions of a saved view or its pinned one, and that of its line."""
    saved_page, model = SAVED_PAGES[page], model_of(view.model)
    if not saved_page.reads_prompt:
        return asks_of(saved_page, view)
    line = ask(LINE, lambda: prediction_question(view, model))
    asked = asks_of(saved_page, view)
    return [replace(line, long=any(each.long for each in asked[:1])), *asked]


def views(
    _view: View, _model: interp.Transformer, _results: Mapping[str, Result]
) -> list[ViewData]:
    """None: the page shows the views of each saved view by themselves."""
    return []


STORY = Page("story", "Story", asks, views, reads_prompt=False)


@dataclass(frozen=True, eq=False)
class Drawn:
    """A saved view with its figures, as far as the answers are known.

    Attributes:
        saved: the saved view.
        columns: its state, and the pinned one before it.
        figures: the views of the widget: of each state, or their differences.
        lines: the predictions of the states, as HTML.
        notes: errors, and what is not computed yet.
    """

    saved: Saved
    columns: Sequence[tuple[View, Results]]
    figures: Sequence[list[ViewData]]
    lines: Sequence[Markup]
    notes: Sequence[str]

    @classmethod
    def of(cls, saved: Saved, columns: Sequence[tuple[str, View, Results]]) -> "Drawn":
        """Draw a saved view from the answers to the questions of its states."""
        page = SAVED_PAGES[saved.view.page]
        lines, notes = list[Markup](), list[str]()
        for name, _, answers in columns:
            prediction = answers.results.get(LINE)
            if isinstance(prediction, Predictions):
                lines.append(line_of(prediction, name))
            notes += [f"{name}{error}" for error in dict.fromkeys(answers.errors.values())]
            waiting = ", ".join(answers.states)
            if waiting:
                notes.append(f"{name}not all is computed yet: {waiting}.")
        states = [(view, answers) for _, view, answers in columns]
        return cls(saved, states, drawn_columns(page, states), lines, notes)

    @property
    def state(self) -> str:
        """The state or the states in words."""
        names = ("A: ", "B: ") if len(self.columns) > 1 else ("",)
        states = zip(names, self.columns, strict=True)
        return "; ".join(f"{name}{described(view)}" for name, (view, _) in states)

    def section(self, address: str) -> StorySection:
        """What the exported page shows of it.

        Args:
            address: the address of the explorer, without a query.
        """
        view = self.saved.view
        local = [each.model for each, _ in self.columns if is_local(each.model)]
        folders = f", with {' and '.join(local)} from a folder of that machine" if local else ""
        names = ("A", "B") if len(self.figures) > 1 else ("",)
        figures = [
            StoryFigures(name, described(each) if name else "", _payload(each, drawn))
            for name, (each, _), drawn in zip(
                names, self.columns[-len(self.figures) :], self.figures, strict=True
            )
        ]
        return StorySection(
            sentence=self.saved.sentence,
            state=self.state,
            page=SAVED_PAGES[view.page].title,
            lines=self.lines,
            link=f"{address}{self.saved.link}",
            where=f"a link to this machine, where interp explore runs{folders}",
            notes=self.notes,
            figures=figures,
        )


def _payload(view: View, drawn: list[ViewData]) -> dict[str, object]:
    """The payload of the widget, with the selection of the view."""
    return {
        "views": drawn,
        "selection": selection(view),
        "meta": {"model": view.model, "prompt": view.text, "version": f"interp {__version__}"},
        "initially": {"heads": initially(view)},
    }
