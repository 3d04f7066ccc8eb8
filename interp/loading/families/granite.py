"""Granite 3 (Granite Team 2024): Llama with four multipliers.

The embedding is multiplied by ``embedding_multiplier``, scores by ``attention_multiplier`` (instead
of 1/√d_head), the outputs of attention and MLP by ``residual_multiplier``; logits are divided by
``logits_scaling``. They make hyperparameters transfer between widths (Yang et al. 2022,
arXiv:2203.03466).
"""

from dataclasses import replace
from typing import Any

from interp.config import Config, EmbeddingConfig
from interp.loading.families import llama
from interp.loading.foreign_config import ForeignConfig

DEFAULTS: dict[str, Any] = {
    **llama.DEFAULTS,
    "embedding_multiplier": 1.0,
    "attention_multiplier": 1.0,
    "residual_multiplier": 1.0,
    "logits_scaling": 1.0,
}


def config(fields: ForeignConfig) -> Config:
    """A multiplier of 1 is left out, except that of scores."""
    attention = llama.grouped_attention(
        fields,
        biased=fields.flag("attention_bias"),
        scale=1 / fields.number("attention_multiplier"),
    )
    model = llama.of_parts(
        fields,
        attention,
        llama.gated_mlp(fields, biased=fields.flag("mlp_bias")),
        embedding=EmbeddingConfig(scale=multiplier(fields, "embedding_multiplier")),
        residual_scale=multiplier(fields, "residual_multiplier"),
    )
    divisor = multiplier(fields, "logits_scaling")
    return replace(model, logit_scale=1 / divisor if divisor and model.unembeds else None)


def multiplier(fields: ForeignConfig, name: str) -> float | None:
    """A multiplier; ``None`` if it is 1."""
    value = fields.number(name)
    if not value > 0:
        raise fields.unsupported(name, value, "a number greater than 0")
    return None if value == 1 else value


FAMILIES = [
    replace(llama.LLAMA, name="Granite", model_types=("granite",), config=config, defaults=DEFAULTS)
]
