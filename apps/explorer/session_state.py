"""Session state of the page, initialised from the URL's query parameters and written back to them.

The URL carries the model, prompt, layer and head, so that a view can be shared. It names bundled
models only; any other name is ignored.
"""

from functools import cache

import streamlit as st

from apps.catalogue import explorable
from apps.defaults import LOGIT_DIFF, LOSS, default_metric, default_prompts
from interp.text.prompts import Prompt, read_prompts

MAX_SHARED = 1000
"""Characters of the longest prompt that is written to the URL."""
FIELDS = ("text", "target", "distractor")
METRICS = {"loss": LOSS, "logit difference": LOGIT_DIFF}
"""The metrics by their labels on the page."""


@cache
def model_names() -> list[str]:
    """Names of the models that the page offers."""
    return explorable()


def examples(name: str) -> list[Prompt]:
    """The bundled prompts of a model."""
    return read_prompts(default_prompts(name))


def initialise(model: str | None) -> None:
    """Fill the state of a new session: from the URL, else with ``model`` and its first example."""
    state, query = st.session_state, st.query_params
    if "model" in state:
        # Streamlit drops the state of widgets that are not on the page.
        for name, default in {**dict.fromkeys(FIELDS, ""), "layer": 0, "head": 0}.items():
            state.setdefault(name, default)
        return
    known = model_names()
    state["model"] = next((name for name in (query.get("model"), model) if name in known), known[0])
    on_model_change()
    for axis in ("layer", "head"):
        text = query.get(axis, "")
        state[axis] = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0  # noqa: PLR2004
    if "text" in query:
        for field in FIELDS:
            state[field] = query.get(field, "")[:MAX_SHARED]
        state["example"] = None


def on_model_change() -> None:
    """Reset the state to the selected model's default metric and first example."""
    state = st.session_state
    state["layer"], state["head"] = 0, 0
    metric = default_metric(state["model"])
    state["metric"] = next(label for label, name in METRICS.items() if name == metric)
    state["example"] = 0 if examples(state["model"]) else None
    on_example_change()


def on_example_change() -> None:
    """Fill the form with the selected example."""
    state = st.session_state
    prompts, index = examples(state["model"]), state.get("example")
    prompt = prompts[index] if index is not None and index < len(prompts) else Prompt("")
    for field in FIELDS:
        state[field] = getattr(prompt, field) or ""


def on_submit() -> None:
    """Deselect the example if the submitted form differs from it."""
    state = st.session_state
    prompts, index = examples(state["model"]), state.get("example")
    if index is not None and [getattr(prompts[index], field) or "" for field in FIELDS] != [
        state[field] for field in FIELDS
    ]:
        state["example"] = None


def update_url() -> None:
    """Write the state to the URL's query parameters; clear them if the prompt is too long."""
    state = st.session_state
    query = {
        name: str(state[name]) for name in ("model", *FIELDS, "layer", "head") if state[name] != ""
    }
    if len(state["text"]) <= MAX_SHARED:
        st.query_params.from_dict(query)
    else:
        st.query_params.clear()
