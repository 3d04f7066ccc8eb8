"""The prompt form: an example of the model, or any text."""

import streamlit as st

from apps.explorer.session_state import examples, on_example_change, on_submit
from interp.text.prompts import Prompt
from interp.text.token_bytes import visible

MAX_CHARACTERS = 20_000
"""The form's own limit; the model's context is usually shorter."""
MAX_LABEL = 60
"""Characters of an example in the list."""


def prompt_form(name: str) -> Prompt:
    """Show the form; return the prompt that was last submitted."""
    prompts = examples(name)
    if prompts:
        st.selectbox(
            "Example",
            range(len(prompts)),
            key="example",
            format_func=lambda index: _label(prompts[index].text),
            on_change=on_example_change,
            placeholder="your own prompt",
        )
    with st.form("prompt", border=False):
        st.text_area("Prompt", key="text", max_chars=MAX_CHARACTERS, height=100)
        target, distractor, submit = st.columns([2, 2, 1], vertical_alignment="bottom")
        # Text areas, because a token may be a line break.
        target.text_area("Target", key="target", height=68, help="The correct next token.")
        distractor.text_area(
            "Distractor",
            key="distractor",
            height=68,
            help="A token that the target is compared with.",
        )
        submit.form_submit_button("Run", type="primary", width="stretch", on_click=on_submit)
    state = st.session_state
    return Prompt(state["text"], state["target"] or None, state["distractor"] or None, "the form")


def _label(text: str) -> str:
    label = visible(text.encode())
    return label if len(label) <= MAX_LABEL else f"{label[:MAX_LABEL]} …"
