"""The explorer's page: model, prompt, attention pattern, head ablation.

Streamlit runs this file at every interaction; the two views are fragments, so that selecting a
head reruns one of them only.
"""

import argparse

import streamlit as st

import interp
from apps.explorer.ablation_view import ablation_view
from apps.explorer.model_cache import load_bundled
from apps.explorer.pattern_view import pattern_view
from apps.explorer.prompt_form import prompt_form
from apps.explorer.session_state import initialise, model_names, on_model_change, update_url
from apps.explorer.widgets import STYLE, errors_on_page, token_strip
from interp.text.prompts import Prompt


def model_argument() -> str | None:
    """The first model named on the command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", action="append", default=[])
    return next(iter(parser.parse_known_args()[0].model), None)


def target_labels(model: interp.Transformer, prompt: Prompt) -> tuple[str, str]:
    """Printable labels of target and distractor; empty where the prompt has none."""
    target, distractor = (
        "".join(model.to_labels(model.to_tokens(text, prepend_bos=False)[0])) if text else ""
        for text in (prompt.target, prompt.distractor)
    )
    return target, distractor


def page() -> None:
    """Show the whole page."""
    st.set_page_config("interp explorer", layout="wide")
    st.html(STYLE)
    st.header("Where do heads attend, and which heads matter?")
    if not model_names():
        st.error("No model is bundled with this installation.")
        return
    initialise(model_argument())
    with errors_on_page():
        selector, shape = st.columns([1, 2], vertical_alignment="bottom")
        name = selector.selectbox("Model", model_names(), key="model", on_change=on_model_change)
        model = load_bundled(name)
        config = model.config
        shape.caption(
            f"{len(model.blocks)} layer{'s' * (len(model.blocks) > 1)} of "
            f"{model.blocks[0].attn.n_heads} heads, d_model "
            f"{config.d_model}, vocabulary {config.d_vocab}, context {config.n_ctx} tokens"
        )
        prompt = prompt_form(name)
        update_url()
        batch = model.batch(prompt.text)
        st.html(token_strip(model.to_labels(batch.ids[0]), *target_labels(model, prompt)))
        left, right = st.columns(2, gap="large")
        with left:
            pattern_view(model, prompt)
        with right:
            ablation_view(name, model, prompt)


page()
