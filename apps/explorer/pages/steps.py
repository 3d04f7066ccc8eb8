"""One cell of a head step by step: products, score, softmax, value, and what the head writes."""

from collections.abc import Mapping
from dataclasses import replace

import interp
from analyses import HeadCell, head_cell
from analyses.results import Result
from apps.explorer.canvas import Pick, ViewData
from apps.explorer.page import Ask, ask
from apps.explorer.pages.view_inputs import inputs_of
from apps.explorer.questions import Question, question
from apps.explorer.validate import attention_of
from apps.explorer.view import Head, View
from apps.widget.pictures import view_of

STEPS, ROW = "steps", "steps_row"
"""The name of the question, by which a view requests it, and the id of the view of the row."""


def steps_asks(view: View, model: interp.Transformer) -> list[Ask]:
    """The chosen cell of the chosen head, if it was requested."""
    return [ask(STEPS, lambda: _question(view, model), long=True)] if STEPS in view.asked else []


def _question(view: View, model: interp.Transformer) -> Question:
    return question(
        head_cell,
        view.model,
        inputs_of(view, model).batch,
        *(view.head or Head(0, 0)),
        query=view.query,
        key=view.key,
        attention=attention_of(view, model),
    )


def steps_views(results: Mapping[str, Result]) -> list[ViewData]:
    """A figure for each step, with its formula."""
    cell = results.get(STEPS)
    if not isinstance(cell, HeadCell):
        return []
    formulas = cell.formulas()
    views: list[ViewData] = [
        view_of(drawing, f"{STEPS}_{name}") | {"note": formulas[name], "pick": None}
        for name, drawing in cell.drawings().items()
    ]
    clickable = {"pick": "x", "note": f"{formulas['row']}. Click a key to see its cell."}
    return [drawn | clickable if drawn["id"] == ROW else drawn for drawn in views]


def pick_step(view: View, pick: Pick) -> View:
    """Choose another key of the row."""
    return replace(view, key=max(0, round(pick["x"])), other_key=None)
