"""OLMo 2 (OLMo Team 2025, arXiv:2501.00656): Llama with norms after attention and MLP.

Attention and MLP read the stream without a norm, and their outputs are normed. Queries and keys are
normed over all heads together before the rotation.
"""

from dataclasses import replace
from typing import Any

from interp.config import AttentionConfig, Config
from interp.loading.families import llama
from interp.loading.foreign_config import ForeignConfig
from interp.loading.weight import Table, from_key, norm

DEFAULTS: dict[str, Any] = {
    **llama.DEFAULTS,
    "vocab_size": 50304,
    "rms_norm_eps": 1e-5,
}


def config(fields: ForeignConfig) -> Config:
    """Norms of outputs, of queries and of keys."""
    norms = llama.rms_norm(fields, placement="write")
    return llama.of_parts(fields, attention(fields), llama.gated_mlp(fields), norm=norms)


def attention(fields: ForeignConfig) -> AttentionConfig:
    """Attention with RMSNorm over all heads of queries and keys."""
    biased, qk_norm = fields.flag("attention_bias"), llama.rms_norm(fields)
    return llama.grouped_attention(fields, biased=biased, qk_norm=qk_norm, qk_norm_over="heads")


def weights(config: Config, fields: ForeignConfig) -> Table:
    """The gains of queries and of keys are stored as one vector for all heads."""
    attention = config.stacks["decoder"].attention
    block = {
        **llama.self_attention(attention),
        **gains_by_head(attention),
        **norm("ln1", "post_attention_layernorm", bias=False),
        **llama.gated(),
        **norm("ln2", "post_feedforward_layernorm", bias=False),
    }
    return llama.decoder(config, fields, block)


def gains_by_head(attention: AttentionConfig) -> Table:
    """The gains of queries and keys, from vectors ``[head·d_head]`` to ``[head d_head]``."""
    path = "" if attention.clip is None else "norm."
    gains = {part: from_key(f"self_attn.{part}_norm.weight") for part in ("q", "k")}
    return {
        f"attn.{part}_norm.{path}gain": gain.map(lambda x: x.view(-1, attention.d_head))
        for part, gain in gains.items()
    }


OLMO2 = replace(
    llama.LLAMA,
    name="OLMo 2",
    model_types=("olmo2",),
    config=config,
    weights=weights,
    defaults=DEFAULTS,
)
FAMILIES = [OLMO2]
