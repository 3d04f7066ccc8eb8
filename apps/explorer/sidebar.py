"""The sidebar of every page: model, prompt, and the settings of sweeps."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import streamlit as st

import interp
from apps.explorer.controls import choose, key_of, when_picked
from apps.explorer.default_views import EXAMPLES, default_view, examples, with_prompt
from apps.explorer.metrics_offered import in_words, offered_metrics
from apps.explorer.offered import model_of, offered, steps
from apps.explorer.state import change, current
from apps.explorer.suggested import with_suggestions
from apps.explorer.validate import has_chat, within_context
from apps.explorer.view import ANSWERED, MAX_TEXT, View
from interp.loading import AT_STEP
from interp.prompts import Prompt
from interp.text import visible

MAX_LABEL = 60
"""Largest number of characters of an example in the list."""
FIELDS = ("text", "target", "distractor", "corrupt", "prefix")
STALE_AFTER = {
    "text": ("target", "distractor", "corrupt"),
    "prefix": ("target", "distractor"),
}
"""What belongs to a prompt and is cleared when that is changed, by the changed field."""


def model_choice() -> None:
    """Choose the model, and the step of its training if it has checkpoints."""
    view = current()
    match = None if view.model in offered() else AT_STEP.fullmatch(view.model)
    name = match["model"] if match else view.model
    key = key_of("choose_model", name)
    change_model = when_picked("choose_model", key, _change_model)
    st.selectbox("Model", offered(), key=key, on_change=change_model)
    checkpoints = steps(name)
    if checkpoints:
        choices = [f"{name}@{step}" for step in checkpoints] + [name]
        key = key_of("choose_step", view.model)
        st.select_slider(
            "Training step",
            choices,
            key=key,
            format_func=lambda choice: choice.partition("@")[2] or "end",
            on_change=when_picked("choose_step", key, lambda step: change(model=step)),
        )


def prompt_form(model: interp.Transformer) -> None:
    """Choose an example of the model, or enter any text."""
    view = current()
    prompts = examples(view.model)
    if prompts:
        number = next(
            (n for n, prompt in enumerate(prompts) if with_prompt(view, prompt) == view), None
        )
        key = key_of("choose_example", number)
        st.selectbox(
            "Example",
            range(len(prompts)),
            key=key,
            format_func=lambda n: _label(prompts[n].text),
            on_change=when_picked("choose_example", key, partial(_change_example, prompts)),
            placeholder="your own prompt",
        )
    if has_chat(model):
        key = key_of("switch_chat", view.chat)
        st.toggle(
            "As a chat message",
            key=key,
            on_change=when_picked("switch_chat", key, _change_chat),
            help="Sends the prompt, and the corrupted prompt, as the user's message through the "
            "model's chat template; the model then begins its answer.",
        )
    with st.form("prompt", border=False):
        for field in FIELDS:
            st.session_state[f"form_{field}"] = getattr(view, field)
        st.text_area(
            "Prompt",
            key="form_text",
            height=110,
            help="A new prompt clears the target, the distractor and the corrupted prompt, unless "
            "they are changed with it.",
        )
        if len(model.stacks) > 1:
            st.text_area(
                "Decoder's prefix",
                key="form_prefix",
                height=68,
                help="The text that the decoder has written so far.",
            )
        # Text areas, because a token may be a line break.
        left, right = st.columns(2)
        left.text_area(
            "Target",
            key="form_target",
            height=68,
            placeholder="most probable",
            help="The correct next token. If empty, the most probable one is explained.",
        )
        right.text_area(
            "Distractor",
            key="form_distractor",
            height=68,
            help="A wrong next token, with which the target is compared. For a new prompt, another "
            "name of the prompt or the most probable other token is entered here.",
        )
        st.text_area(
            "Corrupted prompt",
            key="form_corrupt",
            height=68,
            help="For patching: a prompt with the same number of tokens but another answer. For a "
            "new prompt, a word is swapped for another of its class; the page Patch shows more.",
        )
        st.form_submit_button("Run", width="stretch", on_click=_submit_form)
    if not view.fits_address:
        st.caption(
            f"The address holds no prompt of more than {MAX_TEXT:,} characters: a copied link, or "
            "Back, opens another prompt."
        )


def set_choice() -> None:
    """Choose what sweeps run over: this prompt, or the model's prompt set."""
    view = current()
    choose(
        "Prompts for sweeps",
        "prompts",
        ["", *([EXAMPLES] if examples(view.model) else [])],
        format_func=lambda name: name or "this prompt",
        help="Analyses such as the ablation of every head run over this prompt alone, or over all "
        "examples of the model, which also gives confidence intervals.",
    )
    if current().prompts:
        choose(
            "Which examples",
            "answered",
            ANSWERED,
            format_func=lambda name: f"{name} only" if name else "all",
            help="right: the model's most probable token is the target; wrong: it is another one.",
        )


def metric_choice() -> None:
    """Choose the metric of ablations, among those that the prompts allow."""
    view = current()
    choose(
        "Metric",
        "metric",
        offered_metrics(view, model_of(view.model)),
        format_func=in_words,
        widget="selectbox",
    )


def _change_model(name: str) -> None:
    # A browser can send a name that is not in the list.
    if name in offered():
        change(default_view(name, current().page))


def _change_example(prompts: list[Prompt], number: int | None) -> None:
    if number is not None:
        change(with_prompt(current(), prompts[number]))


def _change_chat(is_chat: bool) -> None:  # noqa: FBT001 - the value of a widget
    """The tokens of the prompt change, so nothing in it stays chosen, and sweeps run over it."""
    chosen = dict.fromkeys(("position", "query", "key"))
    change(chat=is_chat, prompts="", **chosen)


def _submit_form() -> None:
    fields = {field: st.session_state.get(f"form_{field}", "") for field in FIELDS}
    before, view = current(), submitted(current(), fields)
    if view.text and view.text != before.text:
        # Suggestions are of the part of a long prompt that is read; the page cuts it with a note.
        model = model_of(view.model)
        suggested = with_suggestions(within_context(view, model)[0], model)
        view = replace(view, distractor=suggested.distractor, corrupt=suggested.corrupt)
    change(view)


def submitted(view: View, fields: Mapping[str, str]) -> View:
    """The view after the form was sent.

    A new prompt clears what belonged to the former one and was not changed with it, and sweeps run
    over the new prompt.

    Args:
        view: the view that the form showed.
        fields: the texts of the form, by the fields of the view.
    """
    changed = [name for name in FIELDS if fields[name] != getattr(view, name)]
    if not changed:
        return view
    stale = {
        dependent
        for name in changed
        for dependent in STALE_AFTER.get(name, ())
        if dependent not in changed
    }
    prompts = "" if "text" in changed else view.prompts
    filled = {name: "" if name in stale else text for name, text in fields.items()}
    return replace(with_prompt(view, Prompt("")), prompts=prompts, chat=view.chat, **filled)


def _label(text: str) -> str:
    label = visible(text.encode())
    return label if len(label) <= MAX_LABEL else f"{label[:MAX_LABEL]} …"
