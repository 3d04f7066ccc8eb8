"""Loaded models, shared by all sessions: a few at a time, bundled ones only."""

import streamlit as st
import torch

import interp
from interp.errors import ModelLoadError
from interp.loading import bundled, load

MAX_MODELS = 4


def load_bundled(name: str) -> interp.Transformer:
    """A bundled model, on a GPU if there is one.

    Raises:
        ModelLoadError: no bundled model has this name. Paths are never opened.
    """
    if name not in bundled():
        raise ModelLoadError(f"{name!r} is not a bundled model: {', '.join(bundled())}.")
    return _load(name, "cuda" if torch.cuda.is_available() else "cpu", "float32")


@st.cache_resource(max_entries=MAX_MODELS, show_spinner="Loading the model …")
def _load(name: str, device: str, dtype: str) -> interp.Transformer:
    return load(name, device).to(getattr(torch, dtype))
