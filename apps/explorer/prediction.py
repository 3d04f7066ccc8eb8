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


def show_prediction(view: View, model: interp.Transformer) -> None:
    """Show the line of a view, and the switch that ablates the collected heads."""
    try:
        found = JOBS.run(prediction_question(view, model))
    except InterpError as error:
        st.caption(f"No prediction: {escape_markdown(str(error))}")
    else:
        if isinstance(found, Predictions):
            st.html(str(STYLE + line_of(found)))
    if view.heads:
        names = ", ".join(map(str, view.heads))
        switch(f"Ablate {names}", "ablated", help="Applies to predictions and continuations.")


def forwards_first(view: View) -> dict[str, Question]:
    """The predictions that all of a page needs, where a forward over the prompt takes long.

    They are the prediction of the line, and the most probable token where it stands for a target
    that is not given; a pair that is patched has its answer at the end.
    """
    questions: dict[str, Question] = {}
    for before, own in columns_of(view):
        model = model_of(own.model)
        if not is_long_forward(own, model):
            continue
        with suppress(InterpError):  # the line says why there is no prediction
            questions[f"{before}prediction"] = prediction_question(own, model)
            of_targets = (own, replace(own, position=None)) if own.page == "patch" else (own,)
            for each in () if own.target else of_targets:
                asked = target_question(each, model)
                if asked not in questions.values():
                    questions[f"{before}most probable token"] = asked
    return questions


def prediction_question(view: View, model: interp.Transformer) -> Question:
    """The prediction at the view's position, also with the collected heads if they are ablated.

    Means come from the prompts that sweeps run over, so that the numbers agree with the map of
    heads.

    Raises:
        InvalidInput: the prompt of an encoder–decoder has no input for the decoder.
    """
    inputs = Inputs(model, (prompt_of(view),))
    has_targets = len(model.stacks) == 1 or bool(view.prefix)
    answers = {
        name: own if has_targets and single_token(model, own) is not None else None
        for name, own in (("targets", view.target), ("distractors", view.distractor))
    }
    return question(
        predictions,
        view.model,
        inputs.batch,
        pos=view.position,
        top=TOP,
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


def line_of(found: Predictions) -> Markup:
    """The prediction for the only prompt of a result, as a line of HTML."""
    parts: list[Markup | str] = [_most_probable(found)]
    parts += [_probabilities(found, name) for name in found.answers]
    if "target" in found.answers:
        parts.append(_verdict([bool(own) for own in found.correct[:, 0]]))
    if found.ablated_names:
        parts.append(Markup("{} ablated ({})").format(", ".join(found.ablated_names), found.method))
    spans = [Markup("<span>{}</span>").format(part) for part in parts]
    return Markup('<div class="interp-prediction">{}</div>').format(Markup(" ").join(spans))


def _most_probable(found: Predictions) -> Markup:
    """The most probable tokens of the plain prediction, with their probabilities in each run."""
    position, row = int(found.pos[0]), len(found.runs) - 1
    at = found.labels_of(0)[position]
    before = "next token after" if found.predicts_next else "at"
    tokens = [
        Markup("<bdi>{}</bdi> {}").format(
            found.token_labels[id_], _shares([float(p[0, 0, n]) for p in found.probability])
        )
        for n, id_ in enumerate(found.top[0, 0, :LISTED].tolist())
    ]
    first = found.top[row, 0, 0].item()
    now = Markup(" (now most probable: <bdi>{}</bdi>)").format(found.token_labels[int(first)])
    where = Markup("{} <bdi>{}</bdi> (position {}): ").format(before, at, position)
    changed = row > 0 and first != found.top[0, 0, 0].item()
    return where + Markup(" · ").join(tokens) + (now if changed else Markup(""))


def _probabilities(found: Predictions, name: str) -> Markup:
    """The probability of the target or the distractor in each run."""
    row = [*found.answers].index(name)
    shares = _shares([float(own[row, 0]) for own in found.answer_probability])
    label = found.token_labels[found.answers[name][0]]
    return Markup("p({} <bdi>{}</bdi>) {}").format(name, label, shares)


def _shares(values: Sequence[float]) -> str:
    """Probabilities as percentages, the plain one first."""
    shares = (number(100 * own, 3) if own >= 0.0005 else "< 0.05" for own in values)  # noqa: PLR2004
    return f"{' → '.join(shares)} %"


def _verdict(right: Sequence[bool]) -> str:
    """Whether the target is the most probable token in each run; once if that does not change."""
    words = ["✓ right" if own else "✗ wrong" for own in right]
    return " → ".join(dict.fromkeys(words))
