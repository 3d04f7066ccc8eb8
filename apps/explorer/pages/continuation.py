"""The continuation of the prompt by the model: samples, or plain beside edited."""

from dataclasses import asdict

import streamlit as st

import interp
from analyses import Continuations, Steering, steer
from analyses.results import Result, Scale, encoded
from analyses.results import number as number_text
from apps.explorer.canvas import ViewData
from apps.explorer.controls import ask_switch, number, write
from apps.explorer.pages.samples import (
    LEAST_SCALE,
    new_tokens_of,
    sample_views,
    samples_question,
)
from apps.explorer.pages.view_inputs import inputs_of
from apps.explorer.prediction import ablation_of
from apps.explorer.questions import Question, question
from apps.explorer.view import (
    MAX_NEW_TOKENS,
    MAX_SAMPLES,
    MAX_STRENGTH,
    MAX_TEMPERATURE,
    View,
)
from apps.widget.pictures import table_view
from interp.model import PAD
from interp.text import PAD_LABEL

CONTINUATION = "continuation"
"""The name of the question, by which a view requests it."""


def continuation_question(view: View, model: interp.Transformer) -> Question:
    """Samples of the prompt's continuation; with edits, the plain text beside the edited one.

    Edits are the ablation of the collected heads, a steering vector, or both.

    Raises:
        InvalidInput: the prompt fills the context.
    """
    if not is_edited(view):
        return samples_question(view, model)
    batch, vector = inputs_of(view, model).batch, dict[str, object]()
    if view.positive and view.negative:
        prefixes = batch[1] if isinstance(batch, tuple) else None
        sides = [[side] for side in (view.positive, view.negative)]
        vector = {
            "layer": _layer(view, model),
            "contrast": sides if prefixes is None else [(side, prefixes) for side in sides],
            "strengths": [view.strength],
        }
    edit, new_tokens = ablation_of(view, model), new_tokens_of(view, model)
    return question(steer, view.model, batch, **vector, **edit, new_tokens=new_tokens)


def is_edited(view: View) -> bool:
    """Whether heads are ablated, or there is a vector to steer with."""
    return bool((view.ablated and view.heads) or (view.positive and view.negative))


def _layer(view: View, model: interp.Transformer) -> int:
    """The layer at which the vector is added: the last one, unless another is chosen."""
    last = len(model.stacks[-1].blocks) - 1
    return last if view.layer is None else min(view.layer, last)


def continuation_controls(view: View, model: interp.Transformer) -> None:
    """The switch for the continuation, its length, sampling and steering vector."""
    if not model.config.is_causal:
        st.caption("This model is an encoder, which can't continue a text.")
        return
    ask_switch(
        "Continue the prompt",
        CONTINUATION,
        help="Sample a few texts; or, with heads ablated or a steering vector added, compare the "
        "text of the plain model with that of the edited one.",
    )
    if CONTINUATION not in view.asked:
        return
    number("New tokens", "new_tokens", (1, MAX_NEW_TOKENS))
    if not is_edited(view):
        number("Temperature (0: greedy)", "temperature", (0.0, MAX_TEMPERATURE))
        if view.temperature:
            number("Samples", "samples", (1, MAX_SAMPLES))
    write("Steer towards", "positive", help="A text; the stream at its last token is read.")
    write(
        "away from",
        "negative",
        help="Another text. The steering vector is the difference of the streams of the two.",
    )
    if view.positive and view.negative:
        number("at layer", "layer", (0, len(model.stacks[-1].blocks) - 1), _layer(view, model))
        number("Strength", "strength", (-MAX_STRENGTH, MAX_STRENGTH))


def continuation_views(result: Result | None) -> list[ViewData]:
    """The views of samples, or of the plain text beside the edited one."""
    if isinstance(result, Continuations):
        return sample_views(result)
    return _beside_edited(result) if isinstance(result, Steering) else []


def _beside_edited(result: Steering) -> list[ViewData]:
    """Plain and edited tokens below one another, and as texts with the control."""
    texts = result.plain[0], result.steered[0, 0]
    longest = max(sum(n != PAD for n in tokens.tolist()) for tokens in texts)
    plain, edited = (_labels(result, tokens[:longest].tolist()) for tokens in texts)
    first = result.to_prompt_frame().iloc[0]
    kl, same = result.kl[0, 0, :longest], min(int(result.same[0, 0]), longest)
    strength = f", strength {result.strengths[0]:g}" if result.place else ""
    edits = f"{result.edited}{strength}"
    both = f"the first {same} of {len(plain)} tokens are the same"
    strip: ViewData = {
        "kind": "tokens",
        "id": "continued",
        "title": f"Continuation of {len(plain)} tokens: plain above, with {edits} below",
        "run": f"Runs: plain, and with {edits}",
        "note": f"Colour: KL(plain ‖ edited) of the predictions; {both}.",
        "tokens": plain,
        "aligned": edited,
        "below": "edited",
        "values": encoded(kl),
        "unit": "nats",
        "scale": asdict(Scale.from_zero(kl, LEAST_SCALE)),
    }
    rows = [("plain", first["plain_text"], "", "")]
    rows.append(("edited", first["steered_text"], str(first["same_tokens"]), _kl(first["kl"])))
    if result.place:
        same_control = str(result.same_control[0, 0].item())
        text = first["steered_control_text"]
        rows.append(("random vector", text, same_control, _kl(first["control"])))
    columns = [("run", "left"), ("text", "left"), ("same tokens", "right"), ("KL (nats)", "right")]
    title = f"Continuations, plain and with {edits}"
    note = "The random vector has the norm of the steering vector." if result.place else ""
    return [strip, table_view("continuations", title, (columns, rows), note)]


def _labels(result: Steering, tokens: list[int]) -> list[str]:
    return [PAD_LABEL if n == PAD else result.token_labels[n] for n in tokens]


def _kl(value: float) -> str:
    return number_text(value, 3)
