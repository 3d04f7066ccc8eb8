"""The line above every page: the model's prediction, the answers' probabilities, effects of edits.

It shows a part of one call of :func:`analyses.predictions`; the page Prompt shows all of it.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import streamlit as st
from markupsafe import Markup

import interp
from analyses import Predictions, predictions
from analyses.results import number
from apps.commands.inputs import Inputs
from apps.explorer.controls import switch
from apps.explorer.forward_cost import is_long_forward
from apps.explorer.messages import escape_markdown
from apps.explorer.offered import model_of
from apps.explorer.page import JOBS, columns_of
from apps.explorer.pages.view_inputs import (
    TOP,
    inputs_of,
    prompt_of,
    single_token,
    target_question,
)
from apps.explorer.questions import Question, question
from apps.explorer.view import View
from interp.errors import InterpError

LISTED = 3
"""Number of most probable tokens on the line."""
STYLE = Markup("""<style>
.interp-prediction { font-size: 0.875rem; line-height: 1.7; overflow-wrap: anywhere; }
.interp-prediction > span { margin-right: 0.8em; }
.interp-prediction bdi { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, monospace;
  border: 1px solid currentColor; border-radius: 4px; padding: 0 2px 2px; }
</style>""")


def show_prediction(view: View) -> None:
    """Show the line of a view and of the pinned one, and the switch that ablates the heads."""
    for name, column_view in columns_of(view):
        try:
            prediction = JOBS.run(prediction_question(column_view, model_of(column_view.model)))
        except InterpError as error:
            st.caption(f"{name}No prediction: {escape_markdown(str(error))}")
        else:
            if isinstance(prediction, Predictions):
                st.html(str(STYLE + line_of(prediction, name)))
    if view.heads:
        names = ", ".join(map(str, view.heads))
        switch(f"Ablate {names}", "ablated", help="Applies to predictions and continuations.")


def forwards_first(view: View) -> dict[str, Question]:
    """The predictions that all of a page needs, where a forward over the prompt takes long.

    They are the prediction of the line, and the most probable token where it stands for a target
    that is not given; a pair that is patched has its answer at the end.
    """
    questions: dict[str, Question] = {}
    for before, column_view in columns_of(view):
        model = model_of(column_view.model)
        if not is_long_forward(column_view, model):
            continue
        with suppress(InterpError):  # the line says why there is no prediction
            questions[f"{before}prediction"] = prediction_question(column_view, model)
            of_targets = (
                (column_view, replace(column_view, position=None))
                if column_view.page == "patch"
                else (column_view,)
            )
            for each in () if column_view.target else of_targets:
                asked = target_question(each, model)
                if asked not in questions.values():
                    questions[f"{before}most probable token"] = asked
    return questions


def prediction_question(view: View, model: interp.Transformer, *, top: int = TOP) -> Question:
    """The prediction at the view's position, also with the collected heads if they are ablated.

    Means come from the prompts that sweeps run over, so that the numbers agree with the map of
    heads.

    Raises:
        InvalidInput: the prompt of an encoder–decoder has no input for the decoder.
    """
    inputs = Inputs(model, (prompt_of(view, model),))
    has_targets = len(model.stacks) == 1 or bool(view.prefix)
    answers = {
        name: answer if has_targets and single_token(model, answer) is not None else None
        for name, answer in (("targets", view.target), ("distractors", view.distractor))
    }
    return question(
        predictions,
        view.model,
        inputs.batch,
        pos=view.position,
        top=top,
        **answers,
        hidden=view.hidden or None,
        **ablation_of(view, model),
    )


def ablation_of(view: View, model: interp.Transformer) -> dict[str, object]:
    """The arguments with which an analysis ablates the collected heads; empty if it should not.

    Raises:
        InvalidInput: no prompt of the set passes the view's filter.
    """
    if not (view.ablated and view.heads):
        return {}
    before = f"{view.attention or 'decoder'}." if len(model.stacks) > 1 else ""
    of_others = view.prompts and view.method != "zero"
    return {
        "ablate": [f"{before}{head}" for head in view.heads],
        "method": view.method,
        "reference": inputs_of(view, model, swept=True).batch if of_others else None,
    }


# ---- the line, as HTML -----------------------------------------------------------------------


def line_of(prediction: Predictions, name: str = "") -> Markup:
    """The prediction for the only prompt of a result, as a line of HTML; after a name."""
    parts: list[Markup | str] = [Markup("{}{}").format(name, _most_probable(prediction))]
    parts += [_probabilities(prediction, name) for name in prediction.answers]
    if "target" in prediction.answers:
        parts.append(_verdict([bool(is_right) for is_right in prediction.correct[:, 0]]))
    if prediction.ablated_names:
        parts.append(
            Markup("{} ablated ({})").format(", ".join(prediction.ablated_names), prediction.method)
        )
    spans = [Markup("<span>{}</span>").format(part) for part in parts]
    return Markup('<div class="interp-prediction">{}</div>').format(Markup(" ").join(spans))


def _most_probable(prediction: Predictions) -> Markup:
    """The most probable tokens of the plain prediction, with their probabilities in each run."""
    position, row = int(prediction.pos[0]), len(prediction.runs) - 1
    at = prediction.labels_of(0)[position]
    before = "next token after" if prediction.predicts_next else "at"
    tokens = [
        Markup("<bdi>{}</bdi> {}").format(
            prediction.token_labels[id_],
            _shares([float(p[0, 0, n]) for p in prediction.probability]),
        )
        for n, id_ in enumerate(prediction.top[0, 0, :LISTED].tolist())
    ]
    first = prediction.top[row, 0, 0].item()
    now = Markup(" (now most probable: <bdi>{}</bdi>)").format(prediction.token_labels[int(first)])
    where = Markup("{} <bdi>{}</bdi> (position {}): ").format(before, at, position)
    changed = row > 0 and first != prediction.top[0, 0, 0].item()
    return where + Markup(" · ").join(tokens) + (now if changed else Markup(""))


def _probabilities(prediction: Predictions, name: str) -> Markup:
    """The probability of the target or the distractor in each run."""
    row = [*prediction.answers].index(name)
    shares = _shares([float(run[row, 0]) for run in prediction.answer_probability])
    label = prediction.token_labels[prediction.answers[name][0]]
    return Markup("p({} <bdi>{}</bdi>) {}").format(name, label, shares)


def _shares(values: Sequence[float]) -> str:
    """Probabilities as percentages, the plain one first."""
    shares = (number(100 * value, 3) if value >= 0.0005 else "< 0.05" for value in values)  # noqa: PLR2004
    return f"{' → '.join(shares)} %"


def _verdict(right: Sequence[bool]) -> str:
    """Whether the target is the most probable token in each run; once if that does not change."""
    words = ["✓ right" if is_right else "✗ wrong" for is_right in right]
    return " → ".join(dict.fromkeys(words))
