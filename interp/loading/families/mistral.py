"""Mistral (Jiang et al. 2023, arXiv:2310.06825): Llama with a sliding window in every layer.

A query attends to the last ``sliding_window`` keys, its own included; null removes the window.
"""

from dataclasses import replace
from typing import Any

from interp.config import Config
from interp.loading.families import llama
from interp.loading.foreign_config import ForeignConfig
from interp.loading.sliding_window import window

DEFAULTS: dict[str, Any] = {
    **llama.DEFAULTS,
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
}


def config(fields: ForeignConfig) -> Config:
    """The same window in all layers."""
    attention = llama.grouped_attention(fields, window=window(fields))
    return llama.of_parts(fields, attention, llama.gated_mlp(fields))


MISTRAL = replace(
    llama.LLAMA, name="Mistral", model_types=("mistral",), config=config, defaults=DEFAULTS
)
FAMILIES = [MISTRAL]
