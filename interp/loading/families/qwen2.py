"""Qwen2 and Qwen2.5 (Yang et al. 2024, arXiv:2407.10671): Llama with biased queries, keys, values.

The output of attention has no bias. If ``use_sliding_window`` is set, the layers from
``max_window_layers`` on (or those that ``layer_types`` names) have a window.
"""

from dataclasses import replace
from typing import Any

from interp.config import AttentionConfig, Config
from interp.loading.families import llama
from interp.loading.foreign_config import ForeignConfig
from interp.loading.sliding_window import enabled_window_types, sliding_layers, window

DEFAULTS: dict[str, Any] = {
    **llama.DEFAULTS,
    "vocab_size": 151936,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
}


def config(fields: ForeignConfig) -> Config:
    """Biases of queries, keys and values only."""
    return with_windows(fields, llama.grouped_attention(fields, biased=True, bias_o=False))


def with_windows(fields: ForeignConfig, attention: AttentionConfig) -> Config:
    """The configuration with this attention, and a window in some layers.

    Raises:
        ModelLoadError: ``layer_types`` has sliding layers and ``use_sliding_window`` is false.
    """
    first = fields.number("max_window_layers")

    def slides(layer: int) -> bool:
        return window(fields) is not None and layer >= first

    types = enabled_window_types(fields, slides)
    exceptions = sliding_layers(fields, types, attention)
    return llama.of_parts(fields, attention, llama.gated_mlp(fields), exceptions=exceptions)


QWEN2 = replace(
    llama.LLAMA,
    name="Qwen2",
    model_types=("qwen2",),
    config=config,
    defaults=DEFAULTS,
    fields=(*llama.LLAMA.fields, "layer_types"),
    unread=("use_mrope",),
)
FAMILIES = [QWEN2]
