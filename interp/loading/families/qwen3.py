"""Qwen3 (Yang et al. 2025, arXiv:2505.09388): Llama with normed queries and keys.

RMSNorm is applied to each head before its rotation, with a gain shared by the heads of a layer. A
head has 128 dimensions regardless of the width; no biases by default. Windows are as in Qwen2.
"""

from dataclasses import replace
from typing import Any

from interp.config import AttentionConfig, Config
from interp.loading.families import llama, qwen2
from interp.loading.foreign_config import ForeignConfig

DEFAULTS: dict[str, Any] = {**qwen2.DEFAULTS, "head_dim": 128}


def config(fields: ForeignConfig) -> Config:
    """Windows as in Qwen2."""
    return qwen2.with_windows(fields, normed_attention(fields))


def normed_attention(fields: ForeignConfig, window: int | None = None) -> AttentionConfig:
    """Attention with RMSNorm over each head of queries and keys."""
    biased, qk_norm = fields.flag("attention_bias"), llama.rms_norm(fields)
    return llama.grouped_attention(fields, biased=biased, qk_norm=qk_norm, window=window)


QWEN3 = replace(qwen2.QWEN2, name="Qwen3", model_types=("qwen3",), config=config, defaults=DEFAULTS)
FAMILIES = [QWEN3]
