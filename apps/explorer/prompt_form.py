"""What does the model read? One of its examples, or the visitor's own words."""

import streamlit as st

from apps.explorer.session_state import examples, use_example, use_own
from interp.text.prompts import Prompt
from interp.text.token_bytes import visible

LONGEST = 20_000
"""Characters; the context of the model decides below that."""
SHOWN = 60


def prompt_form(name: str) -> Prompt:
    """The form, and what it holds since it was last sent."""
    some = examples(name)
    if some:
        st.selectbox(
            "Example",
            range(len(some)),
            key="example",
            format_func=lambda index: _label(some[index].text),
            on_change=use_example,
            placeholder="your own prompt",
        )
    with st.form("prompt", border=False):
        st.text_area("Prompt", key="text", max_chars=LONGEST, height=100)
        target, distractor, send = st.columns([2, 2, 1], vertical_alignment="bottom")
        # Areas, because a token may be a new line.
        target.text_area("Target", key="target", height=68, help="One token that should follow.")
        distractor.text_area(
            "Distractor", key="distractor", height=68, help="One token to compare it with."
        )
        send.form_submit_button("Read", type="primary", width="stretch", on_click=use_own)
    state = st.session_state
    return Prompt(state["text"], state["target"] or None, state["distractor"] or None, "the form")


def _label(text: str) -> str:
    seen = visible(text.encode())
    return seen if len(seen) <= SHOWN else f"{seen[:SHOWN]} …"
