"""Views of the logit lens: what the model would predict at each layer."""

from collections.abc import Mapping
from typing import Any

import interp
from analyses import LogitLens, logit_lens
from analyses.results import Heatmap, Result
from apps.commands.inputs import Inputs
from apps.explorer.canvas import ViewData
from apps.explorer.page import Ask, ask
from apps.explorer.pages.view_inputs import inputs_of
from apps.explorer.questions import Question, question
from apps.explorer.view import View
from apps.widget.pictures import view_of
from interp.errors import InvalidInput
from interp.metrics import columns_read

ANSWERS = ("target", "distractor")
PANELS = {"Prediction": "probability", "Rank": "0: most probable"}
"""Titles and units of the curves."""


def lens_asks(view: View, inputs: Inputs) -> list[Ask]:
    """The questions: the lens, and the lens with the ranks of target and distractor."""

    def lens(field: str = "") -> Question:
        tokens = inputs.tokens(field) if field else None
        return question(logit_lens, view.model, inputs.batch, targets=tokens, top=1)

    available = [field for field in ANSWERS if inputs.all_have(field)]
    return [
        ask("lens", lens),
        *(ask(field, lambda field=field: lens(field)) for field in available),
    ]


def lens_views(
    view: View, model: interp.Transformer, results: Mapping[str, Result]
) -> list[ViewData]:
    """The most probable token at each layer and position; rank and probability of the answers."""
    lens = results.get("lens")
    if not isinstance(lens, LogitLens):
        return []
    columns = [f"{n} {label}" for n, label in enumerate(lens.tokens[0])]
    column = _column(view, model)
    drawing = Heatmap(
        lens.probability[:, 0, :, 0],
        title=f"{lens.lens_name}: the most probable token at each layer and position; {view.model}",
        rows=[f"{p} {layer}" for p, layer in zip(lens.points, lens.layers, strict=True)],
        columns=columns,
        axes=("stream", "position"),
        unit="probability",
        top=1.0,
        text=[[lens.token_labels[token] for token in row] for row in lens.top[:, 0, :, 0].tolist()],
    )
    grid = {
        **view_of(drawing, "lens"),
        "note": "The last row is the model's prediction. "
        + ("" if view.prompts else "Click a cell to read predictions at its position."),
        "pick": "cell",
        # The widget scrolls to the position that was asked about.
        "at": None if column is None else [len(lens.layers) - 1, column],
    }
    answers = {name: results[name] for name in ANSWERS if name in results}
    if not answers or column is None:
        return [grid]
    return [
        grid,
        _ranks(answers, column, f"{lens.lens_name}: the answers after {columns[column]}"),
    ]


def _column(view: View, model: interp.Transformer) -> int | None:
    """The position at which the answer is read; ``None`` if the prompt has no such position."""
    batch = model.batches(inputs_of(view, model).batch)[-1]
    try:
        return int(columns_read(batch, view.position))
    except InvalidInput:
        return None


def _ranks(answers: Mapping[str, Result], column: int, title: str) -> ViewData:
    """Curves of probability and rank over the layers, for target and distractor."""
    panels: dict[str, list[dict[str, Any]]] = {name: [] for name in PANELS}
    for name, answer in answers.items():
        if (
            not isinstance(answer, LogitLens)
            or answer.rank is None
            or answer.target_probability is None
        ):
            continue
        x = [*range(len(answer.rank))]
        for panel, values in zip(PANELS, (answer.target_probability, answer.rank), strict=True):
            y = values[:, 0, column].tolist()
            panels[panel].append({"name": name, "x": x, "y": y, "faint": False})
    ends = {
        title: [0, max([1, *(y for curve in c for y in curve["y"])])] for title, c in panels.items()
    }
    return {
        "kind": "curves",
        "id": "ranks",
        "title": title,
        "note": "The last point is the model's prediction.",
        "axis": "stream",
        "panels": [
            {"title": title, "unit": PANELS[title], "curves": curves, "ends": ends[title]}
            for title, curves in panels.items()
        ],
        "marked": [],
        "pick": None,
    }
