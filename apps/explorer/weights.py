"""Which models are in memory? A few, shared by all visitors; nothing but bundled ones."""

import streamlit as st
import torch

import interp
from interp.errors import ModelLoadError
from interp.loading import bundled, load

KEPT = 4


def loaded(name: str) -> interp.Transformer:
    """A bundled model, ready to run.

    Raises:
        ModelLoadError: the name is not that of a bundled model; paths are never opened.
    """
    if name not in bundled():
        raise ModelLoadError(f"{name!r} is no bundled model.")
    return _loaded(name, "cuda" if torch.cuda.is_available() else "cpu", "float32")


@st.cache_resource(max_entries=KEPT, show_spinner="Loading the model …")
def _loaded(name: str, device: str, dtype: str) -> interp.Transformer:
    return load(name, device).to(getattr(torch, dtype))
