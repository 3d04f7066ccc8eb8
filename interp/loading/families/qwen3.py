"""Qwen3 (Yang et al. 2025, arXiv:2505.09388): each query and key is normed before it turns.

The norm goes over one head, with a gain that all heads of a layer share. Heads have 128 dimensions
whatever the width, and no biases unless said so; windows are as in Qwen2.
"""

from typing import Any

from interp.config import AttentionConfig, Config
from interp.loading.families import llama, qwen2
from interp.loading.family import Family
from interp.loading.foreign_config import Raw

DEFAULTS: dict[str, Any] = {**qwen2.DEFAULTS, "head_dim": 128}


def config(raw: Raw) -> Config:
    """Windows as in Qwen2."""
    return qwen2.with_windows(raw, normed_attention(raw))


def normed_attention(raw: Raw, window: int | None = None) -> AttentionConfig:
    """Queries and keys normed, each head by itself."""
    biased = raw.flag("attention_bias")
    return llama.attention(raw, biased=biased, qk_norm=llama.rms_norm(raw), window=window)


FAMILIES = [
    Family(
        name="Qwen3",
        model_types=("qwen3",),
        config=config,
        weights=llama.weights,
        defaults=DEFAULTS,
        names=(llama.PREFIX,),
        ignored=llama.IGNORED,
        embedding="embed_tokens.weight",
        ties=False,
    ),
]
