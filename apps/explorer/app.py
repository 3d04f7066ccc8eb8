"""Where does this head look, and which heads matter? The page, from top to bottom.

Streamlit runs this file anew at every interaction; the two views are fragments, so that choosing
a head does not run the other one.
"""

import argparse

import streamlit as st

import interp
from apps.explorer.ablation_view import ablation_view
from apps.explorer.pattern_view import pattern_view
from apps.explorer.prompt_form import prompt_form
from apps.explorer.session_state import begin, models, share, use_model
from apps.explorer.weights import loaded
from apps.explorer.widgets import STYLE, faults_shown, token_strip
from interp.text.prompts import Prompt


def wanted() -> str | None:
    """The model named on the command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model")
    return parser.parse_known_args()[0].model


def expected(model: interp.Transformer, prompt: Prompt) -> tuple[str, str]:
    """Target and distractor, visibly; nothing where there is none."""
    target, distractor = (
        "".join(model.to_labels(model.to_tokens(text, prepend_bos=False)[0])) if text else ""
        for text in (prompt.target, prompt.distractor)
    )
    return target, distractor


def page() -> None:
    """The whole page."""
    st.set_page_config("interp explorer", layout="wide")
    st.html(STYLE)
    st.header("Where do heads look, and which matter?")
    if not models():
        st.error("No model is bundled with this installation.")
        return
    begin(wanted())
    with faults_shown():
        chooser, shape = st.columns([1, 2], vertical_alignment="bottom")
        name = chooser.selectbox("Model", models(), key="model", on_change=use_model)
        model = loaded(name)
        config = model.config
        shape.caption(
            f"{len(model.blocks)} layer{'s' * (len(model.blocks) > 1)} of "
            f"{model.blocks[0].attn.n_heads} heads, d_model "
            f"{config.d_model}, vocabulary {config.d_vocab}, context {config.n_ctx} tokens"
        )
        prompt = prompt_form(name)
        share()
        batch = model.batch(prompt.text)
        st.html(token_strip(model.to_labels(batch.ids[0]), *expected(model, prompt)))
        left, right = st.columns(2, gap="large")
        with left:
            pattern_view(model, prompt)
        with right:
            ablation_view(name, model, prompt)


page()
