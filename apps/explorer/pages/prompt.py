"""The page Prompt: the surprisal of each token, predictions, the prompt set, continuations.

A click on a token reads the prediction there, and on one of a continuation asks why it was written;
in an encoder, a double click masks a token.
"""

from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from weakref import WeakKeyDictionary

import interp
from analyses import Predictions
from analyses.results import PROBABILITIES, Result, Scale, encoded, fixed, number
from apps.defaults import LOGIT_DIFF, LOSS, MASKED_LOSS
from apps.explorer.canvas import Pick, ViewData
from apps.explorer.controls import choose
from apps.explorer.default_views import examples, with_prompt
from apps.explorer.metrics_offered import in_words
from apps.explorer.offered import model_of
from apps.explorer.page import Ask, Page, ask
from apps.explorer.pages.continuation import (
    CONTINUATION,
    continuation_controls,
    continuation_question,
    continuation_views,
)
from apps.explorer.pages.masking import answered_at, has_mask, toggled
from apps.explorer.pages.samples import LEAST_SCALE, WRITTEN, why_written
from apps.explorer.pages.view_inputs import TOP, set_question
from apps.explorer.prediction import prediction_question
from apps.explorer.validate import token_roles
from apps.explorer.view import COLOURS, View
from interp.text import visible

PREDICTION, SET = "prediction", "set"
"""The names of the questions."""
MAX_LABEL = 80
"""Largest number of characters of a prompt in the table of the set."""


def asks(view: View, model: interp.Transformer) -> list[Ask]:
    """The prediction, the model's prompt set, and the continuation if it was requested."""
    # A difference reads the probability of every token in both states.
    top = model.config.n_logits if view.subtract else TOP
    asked = [ask(PREDICTION, lambda: prediction_question(view, model, top=top))]
    if examples(view.model):
        asked.append(ask(SET, lambda: set_question(view, model)))
    if CONTINUATION in view.asked and model.config.is_causal:
        asked.append(ask(CONTINUATION, lambda: continuation_question(view, model), long=True))
    return asked


def views(view: View, model: interp.Transformer, results: Mapping[str, Result]) -> list[ViewData]:
    """The prompt's tokens, what is predicted, the continuation, and the prompt set."""
    drawings: list[ViewData] = []
    prediction, of_set = (results.get(name) for name in (PREDICTION, SET))
    if isinstance(prediction, Predictions):
        if len(model.stacks) > 1:
            drawings.append(source_view(view, model))
        of_state = state_view(view, model, prediction) if view.subtract else top_view(prediction)
        drawings += [tokens_view(view, model, prediction), of_state]
    drawings += continuation_views(results.get(CONTINUATION))
    if isinstance(of_set, Predictions):
        drawings.append(set_view(view, of_set))
    return drawings


def on_pick(view: View, pick: Pick) -> View:
    """Read the prediction at a token, mask it, ask why it was written, or choose a prompt.

    Raises:
        InvalidInput: as for :func:`why_written`.
    """
    row = pick.get("row")
    if not isinstance(row, int):
        return view
    if pick["pick"] == "position":
        return answered_at(view, model_of(view.model), row)
    if pick["pick"] == "mask":
        return toggled(view, model_of(view.model), row)
    if pick["pick"] == WRITTEN:
        return why_written(view, model_of(view.model), pick)
    prompts = examples(view.model)
    if pick.get("view") == SET and 0 <= row < len(prompts):
        return with_prompt(view, prompts[row])
    return view


def controls(view: View, model: interp.Transformer) -> None:
    """The values that colour the tokens, and the settings of the continuation."""
    if view.edit and not view.subtract:
        words = {"surprisal": "surprisal", "change": "its change by the ablation"}
        choose("Colour of the tokens", "colour", COLOURS, format_func=words.__getitem__)
    continuation_controls(view, model)


# ---- views -----------------------------------------------------------------------------------


def tokens_view(view: View, model: interp.Transformer, predictions: Predictions) -> ViewData:
    """The prompt with each token coloured by its surprisal, or by the change of its surprisal."""
    ablates = bool(predictions.ablated_names)
    changes = ablates and view.colour == "change" and not view.subtract
    values = predictions.effect[0] if changes else predictions.surprisal[-1, 0]
    scale = (Scale.around_zero if changes else Scale.from_zero)(values, LEAST_SCALE)
    what = "Change of each token's surprisal" if changes else "Surprisal of each token"
    edit = (
        f", {', '.join(predictions.ablated_names)} ablated ({predictions.method})"
        if ablates
        else ""
    )
    plain_and_edited = predictions.loss[:, 0].tolist()
    losses = [fixed(loss, 3) for loss in plain_and_edited if loss == loss]  # noqa: PLR0124 - NaN
    mean = f", mean {' → '.join(losses)} nats" if losses else ""
    ids, special = predictions.ids[0].tolist(), model.config.tokens
    return {
        "kind": "tokens",
        "id": "tokens",
        # In a difference, what A and B are is given below the title.
        "title": what if view.subtract else f"{what}{edit}: {view.model}, {len(ids)} tokens{mean}",
        "note": _strip_note(model, changes=changes),
        "tokens": [*predictions.tokens[0]],
        "ids": ids,
        "roles": token_roles(view, model),
        "values": encoded(values),
        "unit": "nats",
        "scale": asdict(scale),
        "bos": special.bos is not None and ids[0] == special.bos,
        "masked": [n for n, token in enumerate(ids) if has_mask(model) and token == special.mask],
        "pick": "position",
        "double": "mask" if has_mask(model) else None,
        **({"run": _run(view, changes=changes)} if ablates else {}),
    }


def _run(view: View, *, changes: bool) -> str:
    """Of which run the colours of the tokens are."""
    return f"Run: with {view.edit}, minus the plain one" if changes else f"Run: with {view.edit}"


def _strip_note(model: interp.Transformer, *, changes: bool) -> str:
    """What clicks on tokens do, and which tokens have no value."""
    clicks = "Click a token to read the prediction there. "
    if has_mask(model):
        return clicks + (
            "Double-click a token to mask or unmask it. Only masked tokens have a surprisal, if "
            "the original token is known."
        )
    more = "Above 0: more surprising than without the ablation. " if changes else ""
    return f"{clicks}{more}The first token has no surprisal."


def source_view(view: View, model: interp.Transformer) -> ViewData:
    """The input of the encoder of an encoder–decoder."""
    ids = model.to_tokens(view.text)[0].tolist()
    return {
        "kind": "tokens",
        "id": "source",
        "title": f"What the encoder reads: {len(ids)} tokens",
        "tokens": model.to_labels(ids),
        "ids": ids,
        "bos": model.config.tokens.bos is not None and ids[0] == model.config.tokens.bos,
        "pick": None,
    }


def top_view(predictions: Predictions) -> ViewData:
    """The most probable tokens, without and with the ablation side by side."""
    tokens, position = predictions.candidates(), int(predictions.pos[0])
    columns = [encoded(probabilities) for probabilities in zip(*tokens.values(), strict=True)]
    where = f"{'after' if predictions.predicts_next else 'at'} {predictions.tokens[0][position]!r}"
    drawn: ViewData = {
        "kind": "bars",
        "id": "top",
        "title": f"Most probable tokens {where} (position {position})",
        "note": _top_note(predictions),
        "labels": [predictions.token_labels[id_] for id_ in tokens],
        "values": columns[0],
        "unit": "probability",
        "scale": asdict(PROBABILITIES),
        "pick": None,
    }
    if len(columns) > 1:
        title = f"{', '.join(predictions.ablated_names)} ablated ({predictions.method})"
        drawn |= {"first": "plain", "second": {"title": title, "values": columns[1]}}
        drawn["run"] = f"Runs: plain, and with {title}"
    return drawn


def state_view(view: View, model: interp.Transformer, predictions: Predictions) -> ViewData:
    """The most probable tokens in one run, with the probabilities of all tokens to subtract.

    The run is that with the ablation, if there is one.
    """
    drawn = top_view(predictions) | {"note": ""}
    ids = [int(id_) for id_ in predictions.top[-1, 0]]
    by_id = dict(zip(ids, predictions.probability[-1, -1, 0].tolist(), strict=True))
    values = [by_id[id_] for id_ in sorted(by_id)]
    drawn |= {
        "labels": [predictions.token_labels[id_] for id_ in ids[:TOP]],
        "values": encoded([by_id[id_] for id_ in ids[:TOP]]),
        "every": {"of": _vocabulary(model), "ids": ids[:TOP], "values": encoded(values)},
    }
    for name in ("first", "second"):
        drawn.pop(name, None)
    return drawn | ({"run": _run(view, changes=False)} if predictions.ablated_names else {})


_vocabularies = WeakKeyDictionary[interp.Transformer, str]()


def _vocabulary(model: interp.Transformer) -> str:
    """A name for the tokens of a model, equal for equal tokens with equal ids."""
    if model not in _vocabularies:
        labels = model.to_labels([*range(model.config.n_logits)])
        _vocabularies[model] = sha256("\0".join(labels).encode()).hexdigest()[:16]
    return _vocabularies[model]


def _top_note(predictions: Predictions) -> str:
    """The ranks of the answers, the ablation, and how far it moves the prediction."""
    notes = [
        f"{name} {predictions.token_labels[ids[0]]!r}: rank "
        + " → ".join(str(int(rank)) for rank in predictions.answer_rank[:, row, 0])
        for row, (name, ids) in enumerate(predictions.answers.items())
    ]
    if predictions.ablated_names:
        kl = max(0.0, float(predictions.kl_at_position[0]))
        names = ", ".join(predictions.ablated_names)
        notes.append(f"z of {names} is replaced with {predictions.replacement}")
        notes.append(f"KL(plain ‖ ablated) at this position: {number(kl, 3)} nats")
    return "; ".join(notes)


def set_view(view: View, predictions: Predictions) -> ViewData:
    """The model's prompts: the metric of each without edits, and whether it is answered right."""
    numbers = _metric_of_set(view, predictions)
    rights = (
        predictions.correct[0].tolist()
        if "target" in predictions.answers
        else [None] * len(predictions.ids)
    )
    words = {True: "right", False: "wrong", None: ""}
    rows = [
        [
            _label(prompt.text),
            _label(prompt.target or ""),
            predictions.token_labels[top],
            value,
            words[right],
        ]
        for prompt, top, value, right in zip(
            examples(view.model), predictions.top[0, :, 0].tolist(), numbers, rights, strict=True
        )
    ]
    n_right = (
        f", {sum(map(bool, rights))} answered right" if "target" in predictions.answers else ""
    )
    return {
        "kind": "table",
        "id": SET,
        "title": f"Prompts of {view.model}: {len(rows)}{n_right}",
        "note": "Click a row to use its prompt. The sidebar can filter this set for sweeps.",
        "columns": [
            {"title": "prompt"},
            {"title": "target"},
            {"title": "predicted"},
            {"title": in_words(view.metric), "align": "right"},
            {"title": "answer"},
        ],
        "rows": rows,
        "pick": "row",
    }


def _metric_of_set(view: View, predictions: Predictions) -> list[float | None]:
    """The view's metric for each prompt without edits; ``None`` where it is not defined."""
    of = {
        LOSS: lambda: predictions.loss[0],
        MASKED_LOSS: lambda: predictions.loss[0],
        LOGIT_DIFF: lambda: predictions.logit_difference[0],
        "prob": lambda: predictions.answer_probability[0, 0],
        "logit": lambda: predictions.answer_logit[0, 0],
        "kl": lambda: 0 * predictions.loss[0],
    }
    needs = {LOGIT_DIFF: 2, "prob": 1, "logit": 1}.get(view.metric, 0)
    if view.metric not in of or len(predictions.answers) < needs:
        return [None] * len(predictions.ids)
    values = of[view.metric]().tolist()
    return [round(value, 4) if value == value else None for value in values]  # noqa: PLR0124 - NaN


def _label(text: str) -> str:
    label = visible(text.encode()) if text else ""
    return (
        label
        if len(label) <= MAX_LABEL
        else f"{label[: MAX_LABEL // 2]} … {label[-MAX_LABEL // 2 :]}"
    )


PROMPT = Page("prompt", "Prompt", asks, views, on_pick, controls, sidebar=("prompts", "metric"))
