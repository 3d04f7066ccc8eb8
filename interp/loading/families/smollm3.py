"""SmolLM3 (Hugging Face 2025): Llama without positions in every fourth layer.

``no_rope_layers`` has a 1 for each layer with rotary positions and a 0 for each without (Yang et
al. 2025, arXiv:2501.18795); by default, every ``no_rope_layer_interval``-th layer has none. If
``use_sliding_window`` is set, layers without positions (or those that ``layer_types`` names) have
a window.
"""

from dataclasses import replace
from typing import Any

from interp.config import Config, LayerConfig, PositionsConfig
from interp.loading.families import llama
from interp.loading.foreign_config import ForeignConfig
from interp.loading.sliding_window import enabled_window_types, sliding_layers, window

DEFAULTS: dict[str, Any] = {
    **llama.DEFAULTS,
    "vocab_size": 128256,
    "hidden_size": 2048,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "rope_theta": 2_000_000.0,
    "use_sliding_window": False,
    "sliding_window": None,
    "no_rope_layer_interval": 4,
}


def config(fields: ForeignConfig) -> Config:
    """Two kinds of exceptions: layers without positions, and layers with a window."""
    attention = llama.grouped_attention(fields, biased=fields.flag("attention_bias"))
    unrotated = layers_without_rotary(fields)
    types = enabled_window_types(
        fields, lambda layer: window(fields) is not None and layer in unrotated
    )
    none = (LayerConfig(unrotated, positions=PositionsConfig(kind="none")),) if unrotated else ()
    return llama.of_parts(
        fields,
        attention,
        llama.gated_mlp(fields, biased=fields.flag("mlp_bias")),
        exceptions=(*none, *sliding_layers(fields, types, attention)),
    )


def layers_without_rotary(fields: ForeignConfig) -> tuple[int, ...]:
    """The layers without rotary positions.

    Raises:
        ModelLoadError: ``no_rope_layers`` is not a list of one number for each layer.
    """
    n_layers, listed = fields.integer("num_hidden_layers"), fields.get("no_rope_layers")
    if listed is None:
        interval = fields.integer("no_rope_layer_interval")
        return tuple(layer for layer in range(n_layers) if (layer + 1) % interval == 0)
    if not isinstance(listed, list) or len(listed) != n_layers or not set(listed) <= {0, 1}:
        raise fields.unsupported("no_rope_layers", listed, f"{n_layers} times 0 or 1")
    return tuple(layer for layer, rotates in enumerate(listed) if not rotates)


FAMILIES = [
    replace(
        llama.LLAMA,
        name="SmolLM3",
        model_types=("smollm3",),
        config=config,
        defaults=DEFAULTS,
        fields=(*llama.LLAMA.fields, "layer_types", "no_rope_layers"),
        unread=(*llama.LLAMA.unread, "max_window_layers"),
        tied=True,
    )
]
