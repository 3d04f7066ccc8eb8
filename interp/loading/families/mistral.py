"""Mistral (Jiang et al. 2023, arXiv:2310.06825): Llama's shape, with a window in every layer.

A query sees the last ``sliding_window`` keys alone, its own among them; null lets it see all.
"""

from typing import Any

from interp.config import Config
from interp.loading.families import llama
from interp.loading.family import Family
from interp.loading.foreign_config import Raw
from interp.loading.sliding_window import window

DEFAULTS: dict[str, Any] = {
    **llama.DEFAULTS,
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
}


def config(raw: Raw) -> Config:
    """The same window everywhere."""
    raw.only("layer_types")
    return llama.of_parts(raw, llama.attention(raw, window=window(raw)), llama.gated_mlp(raw))


FAMILIES = [
    Family(
        name="Mistral",
        model_types=("mistral",),
        config=config,
        weights=llama.weights,
        defaults=DEFAULTS,
        names=(llama.PREFIX,),
        ignored=llama.IGNORED,
        embedding="embed_tokens.weight",
        ties=False,
    ),
]
