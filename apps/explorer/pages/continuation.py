"""The continuation of the prompt by the model, with and without edits."""

from dataclasses import asdict

import streamlit as st

import interp
from analyses import Steering, steer
from analyses.results import Scale, encoded
from analyses.results import number as number_text
from apps.explorer.canvas import ViewData
from apps.explorer.controls import ask_switch, number, write
from apps.explorer.pages.view_inputs import inputs_of
from apps.explorer.prediction import ablation_of
from apps.explorer.questions import Question, question
from apps.explorer.view import MAX_NEW_TOKENS, MAX_STRENGTH, View
from apps.widget.pictures import table_view
from interp.errors import InvalidInput
from interp.model import PAD
from interp.text import PAD_LABEL

LEAST_SCALE = 0.01
"""Least upper end of a colour scale, in nats: smaller numbers may be rounding errors."""
CONTINUATION = "continuation"
"""The name of the question, by which a view requests it."""


def continuation_question(view: View, model: interp.Transformer) -> Question:
    """The prompt continued with the collected heads ablated, a steering vector added, or both.

    Raises:
        InvalidInput: nothing is edited, or the prompt fills the context.
    """
    edit, batch = ablation_of(view, model), inputs_of(view, model).batch
    vector: dict[str, object] = {}
    if view.positive and view.negative:
        prefixes = batch[1] if isinstance(batch, tuple) else None
        sides = [[side] for side in (view.positive, view.negative)]
        vector = {
            "layer": _layer(view, model),
            "contrast": sides if prefixes is None else [(side, prefixes) for side in sides],
            "strengths": [view.strength],
        }
    if not edit and not vector:
        raise InvalidInput(
            "A continuation compares the model with an edited one: collect heads on the page Heads "
            "(Shift-click) and switch on their ablation, or enter two texts to steer with."
        )
    return question(
        steer, view.model, batch, **vector, **edit, new_tokens=_new_tokens(view, model, batch)
    )


def _layer(view: View, model: interp.Transformer) -> int:
    """The layer at which the vector is added: the last one, unless another is chosen."""
    last = len(model.stacks[-1].blocks) - 1
    return last if view.layer is None else min(view.layer, last)


def _new_tokens(
    view: View, model: interp.Transformer, batch: list[str] | tuple[list[str], list[str]]
) -> int:
    """The number of new tokens that the view requests, or that fit the context.

    Raises:
        InvalidInput: no new token fits the context.
    """
    text = batch[1] if isinstance(batch, tuple) else batch
    room = model.config.n_ctx - model.to_tokens(text, stack=model.stacks[-1].name).shape[1]
    if room < 1:
        raise InvalidInput(
            f"The prompt fills the context of {model.config.n_ctx} tokens: it can't be continued."
        )
    return min(view.new_tokens, room)


def continuation_controls(view: View, model: interp.Transformer) -> None:
    """The switch for the continuation, and its length and steering vector."""
    if not model.config.is_causal:
        st.caption("This model is an encoder, which can't continue a text.")
        return
    ask_switch(
        "Continue the prompt",
        CONTINUATION,
        help="Generate text with the plain model and with an edited one: with heads ablated, a "
        "steering vector added, or both.",
    )
    if CONTINUATION not in view.asked:
        return
    number("New tokens", "new_tokens", (1, MAX_NEW_TOKENS))
    write("Steer towards", "positive", help="A text; the stream at its last token is read.")
    write(
        "away from",
        "negative",
        help="Another text. The steering vector is the difference of the streams of the two.",
    )
    if view.positive and view.negative:
        number("at layer", "layer", (0, len(model.stacks[-1].blocks) - 1), _layer(view, model))
        number("Strength", "strength", (-MAX_STRENGTH, MAX_STRENGTH))


def continuation_views(result: Steering) -> list[ViewData]:
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
