"""OLMo 1 (Groeneveld et al. 2024, arXiv:2402.00838): Llama with LayerNorm without parameters.

Norms have neither gain nor bias, and no weights are stored for them. If ``clip_qkv`` is set,
queries, keys and values are clipped to ±``clip_qkv`` before the rotation.
"""

from dataclasses import replace
from typing import Any

from interp.config import Config, NormConfig
from interp.loading.families import llama
from interp.loading.foreign_config import ForeignConfig

DEFAULTS: dict[str, Any] = {
    **llama.DEFAULTS,
    "vocab_size": 50304,
    "clip_qkv": None,
}


def config(fields: ForeignConfig) -> Config:
    """LayerNorm without gain and bias, with the default ε."""
    biased, clip = fields.flag("attention_bias"), clip_of(fields)
    attention = llama.grouped_attention(fields, biased=biased, clip=clip)
    norms = NormConfig(gain=False, bias=False)
    return llama.of_parts(fields, attention, llama.gated_mlp(fields), norm=norms)


def clip_of(fields: ForeignConfig) -> float | None:
    """``clip_qkv``: the bound of |q|, |k| and |v|; ``None`` if there is none."""
    return None if fields.nullable("clip_qkv") is None else fields.number("clip_qkv")


FAMILIES = [
    replace(
        llama.LLAMA,
        name="OLMo",
        model_types=("olmo",),
        config=config,
        defaults=DEFAULTS,
    )
]
