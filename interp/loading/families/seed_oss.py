"""Seed-OSS (ByteDance Seed 2025): Llama with biased queries, keys and values.

``attention_out_bias`` sets the bias of attention's output. A head has 128 dimensions regardless of
the width.
"""

from dataclasses import replace
from typing import Any

from interp.config import Config
from interp.loading.families import llama
from interp.loading.foreign_config import ForeignConfig

DEFAULTS: dict[str, Any] = {
    **llama.DEFAULTS,
    "vocab_size": 155136,
    "intermediate_size": 27648,
    "num_hidden_layers": 64,
    "num_attention_heads": 80,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 524288,
    "attention_bias": True,
    "attention_out_bias": False,
}


def config(fields: ForeignConfig) -> Config:
    """Three fields set the biases of attention and MLP."""
    biased, bias_o = fields.flag("attention_bias"), fields.flag("attention_out_bias")
    attention = llama.grouped_attention(fields, biased=biased, bias_o=bias_o)
    return llama.of_parts(
        fields, attention, llama.gated_mlp(fields, biased=fields.flag("mlp_bias"))
    )


FAMILIES = [
    replace(
        llama.LLAMA,
        name="Seed-OSS",
        model_types=("seed_oss",),
        config=config,
        defaults=DEFAULTS,
        unread=(*llama.LLAMA.unread, "residual_dropout"),
    )
]
