"""Qwen2 and Qwen2.5 (Yang et al. 2024, arXiv:2407.10671): Llama's shape with biased queries.

Queries, keys and values have biases, what is written has none. Where ``use_sliding_window`` says
so, the layers from ``max_window_layers`` on (or those that ``layer_types`` names) have a window.
"""

from typing import Any

from interp.config import AttentionConfig, Config
from interp.loading.families import llama
from interp.loading.family import Family
from interp.loading.foreign_config import Raw
from interp.loading.sliding_window import SLIDING, kinds, sliding, window

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


def config(raw: Raw) -> Config:
    """No bias where attention writes."""
    return with_windows(raw, llama.attention(raw, biased=True, bias_o=False))


def with_windows(raw: Raw, attention: AttentionConfig) -> Config:
    """This attention in all layers, but that some have a window.

    Raises:
        ModelLoadError: layers are to have one, and the switch for all windows is off.
    """
    slides, first = raw.flag("use_sliding_window"), raw.number("max_window_layers")
    told = kinds(raw, lambda layer: slides and window(raw) is not None and layer >= first)
    if SLIDING in told and not slides:
        raise raw.refused("use_sliding_window", value=False, expected="True where layers slide")
    return llama.of_parts(
        raw, attention, llama.gated_mlp(raw), exceptions=sliding(raw, told, attention)
    )


FAMILIES = [
    Family(
        name="Qwen2",
        model_types=("qwen2",),
        config=config,
        weights=llama.weights,
        defaults=DEFAULTS,
        names=(llama.PREFIX,),
        ignored=llama.IGNORED,
        embedding="embed_tokens.weight",
        ties=False,
    ),
]
