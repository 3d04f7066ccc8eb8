"""The page Heads: a map of scores, all attention patterns, and one head on the tokens, linked.

It also shows what is known of a head: the effect of its ablation, its roles, and on request the
texts on which it attends most.
"""

from collections.abc import Mapping
from dataclasses import replace
from weakref import WeakKeyDictionary

import streamlit as st

import interp
from analyses import (
    AttentionPatterns,
    HeadRoles,
    Predictions,
    TopTexts,
    ablate,
    attention_patterns,
    attention_statistics,
    head_roles,
    top_texts,
)
from analyses.head_roles import has_roles
from analyses.methods.components import METHODS
from analyses.methods.heads import attentions_of
from analyses.results import Result
from apps.commands.inputs import Inputs
from apps.explorer.canvas import Pick, ViewData
from apps.explorer.controls import ask_switch, choose
from apps.explorer.default_views import examples, with_prompt
from apps.explorer.offered import model_of
from apps.explorer.page import Ask, Page, ask
from apps.explorer.pages.heads.known import card_labels, roles
from apps.explorer.pages.heads.patterns import patterns_sent
from apps.explorer.pages.heads.scores import scores
from apps.explorer.pages.masking import answered_at
from apps.explorer.pages.measured import is_previewed, sweep_asks
from apps.explorer.pages.prompt import tokens_view
from apps.explorer.pages.steps import ROW, STEPS, pick_step, steps_asks, steps_views
from apps.explorer.pages.view_inputs import inputs_of, metric_of
from apps.explorer.pages.why_there import (
    SWITCH,
    pick_why_there,
    why_there_asks,
    why_there_views,
)
from apps.explorer.prediction import ablation_of, prediction_question
from apps.explorer.questions import Question, question
from apps.explorer.state import change
from apps.explorer.validate import attention_of, heads_of, token_roles
from apps.explorer.view import Head, View
from apps.frame_table import table_of_frame
from apps.widget.pictures import table_view

PATTERNS, WEIGHTED, ROLES, TEXTS, EDITED = "patterns", "weighted", "roles", "texts", "prediction"
"""Names of questions; a view requests the texts by their name."""
ROWS = 16
"""Number of random sequences, instead of 32, because roles are shown only after all of them ran."""


def asks(view: View, model: interp.Transformer) -> list[Ask]:
    """The patterns of this prompt, and the scores of heads on all prompts that sweeps run over."""
    questions = [
        ask(PATTERNS, lambda: patterns_question(view, model)),
        ask(WEIGHTED, lambda: patterns_question(view, model, weighted=True)),
        *_ablation_asks(view, model),
        ask("statistics", lambda: _statistics(view, model), long=True),
    ]
    if _has_roles(model):
        questions.append(ask(ROLES, lambda: question(head_roles, view.model, rows=ROWS), long=True))
    questions += [*why_there_asks(view, model), *steps_asks(view, model)]
    if TEXTS in view.asked and examples(view.model):
        questions.append(ask(TEXTS, lambda: _texts(view, model), long=True))
    if view.edit or view.subtract:
        questions.append(ask(EDITED, lambda: prediction_question(view, model)))
    return questions


_HAS_ROLES: WeakKeyDictionary[interp.Transformer, bool] = WeakKeyDictionary()
"""Whether roles can be measured, of each model that was asked for."""


def _has_roles(model: interp.Transformer) -> bool:
    """Whether roles can be measured; found once, since it reads the whole vocabulary."""
    if model not in _HAS_ROLES:
        _HAS_ROLES[model] = has_roles(model)
    return _HAS_ROLES[model]


def views(view: View, model: interp.Transformer, results: Mapping[str, Result]) -> list[ViewData]:
    """The effect of ablating the set, the linked view of all heads, top texts of the chosen one."""
    drawings: list[ViewData] = []
    edited, patterns, texts = (results.get(name) for name in (EDITED, PATTERNS, TEXTS))
    if isinstance(edited, Predictions):
        drawings.append(tokens_view(replace(view, colour="change"), model, edited))
    if isinstance(patterns, AttentionPatterns):
        drawings.append(_heads_view(view, model, patterns, results))
        pattern = patterns.of(*_head_of(view))
        drawings += [*why_there_views(view, results, pattern), *steps_views(results)]
    if isinstance(texts, TopTexts):
        drawings.append(_texts_view(texts))
    return drawings


def on_pick(view: View, pick: Pick) -> View:
    """Read the prediction at a token, choose a prompt among the top texts, or part of a score."""
    if pick["pick"] == "head":
        return replace(view, head=Head(int(pick["row"]), int(pick["column"])))
    if pick["pick"] == "position":
        return answered_at(view, model_of(view.model), int(pick["row"]))
    if pick.get("view") == TEXTS:
        return with_prompt(view, examples(view.model)[int(pick["name"])])
    return pick_step(view, pick) if pick.get("view") == ROW else pick_why_there(view, pick)


def controls(view: View, model: interp.Transformer) -> None:
    """The attention that is shown, the method of ablation, more on the chosen head."""
    if len(model.stacks) > 1:
        choose("Attention", "attention", ["decoder", "cross", "encoder"])
    choose("Ablation method", "method", METHODS, help="What replaces the output z of a head.")
    if examples(view.model):
        ask_switch(
            f"Top texts of {_head_of(view)}",
            TEXTS,
            help="Find the model's examples on which this head attends most.",
        )
    ask_switch(**SWITCH)
    ask_switch(
        "Step by step",
        STEPS,
        help="Show how the head computes the chosen cell: from query and key to what it writes.",
    )
    st.button(
        "Why this answer?",
        key="why",
        on_click=lambda: change(page="why"),
        help="Open the page Why: what each component contributes to the answer.",
    )


def _head_of(view: View) -> Head:
    """The chosen head; the first one if none is chosen, as in the widget."""
    return view.head or Head(0, 0)


# ---- questions -------------------------------------------------------------------------------


def patterns_question(
    view: View, model: interp.Transformer, *, weighted: bool | None = None
) -> Question:
    """The attention patterns of this prompt; optionally weighted by the values."""
    batch = inputs_of(view, model).batch
    source, target = (rows[0] for rows in batch) if isinstance(batch, tuple) else (batch[0], None)
    return question(
        attention_patterns,
        view.model,
        source,
        target=target,
        attention=attention_of(view, model),
        weighted=weighted,
        **_edit(view, model),
    )


def _edit(view: View, model: interp.Transformer) -> dict[str, object]:
    """The ablation of the patterns' run; none if donors are needed and there are no prompts."""
    has_donors = view.method != "resample" or bool(view.prompts)
    return ablation_of(view, model) if has_donors else {}


def _ablation(view: View, model: interp.Transformer, **settings: object) -> Question:
    inputs = inputs_of(view, model, swept=True)
    metric = metric_of(view, inputs)
    return question(ablate, view.model, inputs.batch, metric=metric, method=view.method, **settings)


def _ablation_asks(view: View, model: interp.Transformer) -> list[Ask]:
    """The ablation of each head; KL, whose gradient is 0 without ablation, has no preview."""
    return sweep_asks(
        "ablation",
        lambda settings: _ablation(view, model, **settings),
        preview=view.metric != "kl" and is_previewed(view, model),
    )


def _statistics(view: View, model: interp.Transformer) -> Question:
    prompts, attention = inputs_of(view, model, swept=True).batch, attention_of(view, model)
    return question(attention_statistics, view.model, prompts, offsets=1, attention=attention)


def _texts(view: View, model: interp.Transformer) -> Question:
    """The texts of the model's prompt set on which the chosen head attends most."""
    texts = Inputs(model, tuple(examples(view.model))).batch
    name = attentions_of(model, attention_of(view, model)).head_name(*_head_of(view))
    return question(top_texts, view.model, texts, of=name)


# ---- views -----------------------------------------------------------------------------------


def _heads_view(
    view: View,
    model: interp.Transformer,
    patterns: AttentionPatterns,
    results: Mapping[str, Result],
) -> ViewData:
    """The data with which the widget can show any head without another request."""
    sizes, attention = (*heads_of(view, model),), attention_of(view, model)
    which = f"{attention} attention" if attention else "attention"
    layer, weighted, measured = _head_of(view).layer, results.get(WEIGHTED), results.get(ROLES)
    drawing: ViewData = {
        "kind": "heads",
        "id": "heads",
        "title": f"{view.model}: {which} of each head",
        "tokens": [*patterns.key_tokens],
        "ids": [*patterns.key_ids],
        "token_roles": token_roles(view, model),
        "bos": patterns.key_ids[:1] == (model.config.tokens.bos,),
        "causal": patterns.is_causal,
        "patterns": patterns_sent(patterns, layer),
        "scores": scores(results, sizes, attention),
        "truth": card_labels(view.model, attention) or None,
    }
    if view.edit:
        of_patterns = f"with {view.edit}" if patterns.ablated_names else "plain"
        drawing["run"] = f"Runs: patterns {of_patterns}; scores plain"
    if attention == "cross":
        drawing |= {"queries": [*patterns.query_tokens], "query_ids": [*patterns.query_ids]}
    if attention is not None:
        drawing["names"] = [
            [f"{attention}.{Head(layer, head)}" for head in range(n)]
            for layer, n in enumerate(sizes)
        ]
    if isinstance(weighted, AttentionPatterns):
        drawing["weighted"] = patterns_sent(weighted, layer)
    if isinstance(measured, HeadRoles):
        drawing["roles"] = roles(measured)
    return drawing


def _texts_view(texts: TopTexts) -> ViewData:
    title = f"{texts.of}: where it attends most, on {texts.n_texts} texts"
    note = (
        "The control is the value with the other tokens of the text in random order. Click a row "
        "to use its text as the prompt."
    )
    columns = ["text", "value", "control", "token", "key_token", "context"]
    table = table_of_frame(texts.to_frame()[columns])
    return table_view(TEXTS, title, table, note) | {"pick": "row"}


HEADS = Page("heads", "Heads", asks, views, on_pick, controls, sidebar=("prompts", "metric"))
