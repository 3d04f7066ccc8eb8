"""What has the visitor chosen? Session state, begun from the address and written back to it.

An address can carry a prompt, a layer and a head, so that what one sees can be sent to another. It
names models by their bundled names and nothing else: what is not one of them is passed over.
"""

from functools import cache

import streamlit as st

from apps.ablation import metric_for, prompts_for
from apps.catalogue import explorable
from apps.explorer.metric import LOGIT_DIFF, LOSS
from interp.text.prompts import Prompt, read_prompts

LONGEST_SHARED = 1000
"""Characters of a prompt that fit into an address."""
FIELDS = ("text", "target", "distractor")


@cache
def models() -> list[str]:
    """Names to choose from."""
    return explorable()


def examples(name: str) -> list[Prompt]:
    """The prompts that come with a model."""
    return read_prompts(prompts_for(name))


def begin(wanted: str | None) -> None:
    """Fill the session's state on a first visit: from the address, else with an example."""
    state, address = st.session_state, st.query_params
    if "model" in state:
        # Streamlit forgets what a widget holds while it is not on the page.
        for name, nothing in {**dict.fromkeys(FIELDS, ""), "layer": 0, "head": 0}.items():
            state.setdefault(name, nothing)
        return
    known = models()
    named = [name for name in (address.get("model"), wanted) if name in known]
    state["model"] = named[0] if named else known[0]
    use_model()
    for axis in ("layer", "head"):
        given = address.get(axis, "")
        state[axis] = int(given) if given.isascii() and given.isdigit() and len(given) < 4 else 0  # noqa: PLR2004
    if "text" in address:
        for field in FIELDS:
            state[field] = address.get(field, "")[:LONGEST_SHARED]
        state["example"] = None


def use_model() -> None:
    """Begin anew with the chosen model's first example."""
    state = st.session_state
    state["layer"], state["head"] = 0, 0
    state["metric"] = LOSS if metric_for(state["model"]) == "loss" else LOGIT_DIFF
    some = examples(state["model"])
    state["example"] = 0 if some else None
    use_example()


def use_example() -> None:
    """Fill the form with the chosen example."""
    state = st.session_state
    some, index = examples(state["model"]), state.get("example")
    prompt = some[index] if index is not None and index < len(some) else Prompt("")
    for field in FIELDS:
        state[field] = getattr(prompt, field) or ""


def use_own() -> None:
    """The form was sent: what it holds need not be the example any more."""
    state = st.session_state
    some, index = examples(state["model"]), state.get("example")
    if index is not None and [getattr(some[index], field) or "" for field in FIELDS] != [
        state[field] for field in FIELDS
    ]:
        state["example"] = None


def share() -> None:
    """Write what is chosen into the address."""
    state = st.session_state
    said = {
        name: str(state[name]) for name in ("model", *FIELDS, "layer", "head") if state[name] != ""
    }
    if len(state["text"]) <= LONGEST_SHARED:
        st.query_params.from_dict(said)
    else:
        st.query_params.clear()
