"""OLMoE (Muennighoff et al. 2024, arXiv:2409.02060): Llama with experts in every layer.

Queries and keys are normed over all heads together. If ``clip_qkv`` is set, they and the values are
then clipped. The weights of the selected experts are divided by their sum only if
``norm_topk_prob`` is set.
"""

from dataclasses import replace
from typing import Any

from interp.config import Config
from interp.loading.families import llama, mixtral, olmo, olmo2, qwen3_moe
from interp.loading.foreign_config import ForeignConfig
from interp.loading.weight import Table

DEFAULTS: dict[str, Any] = {
    **olmo2.DEFAULTS,
    "hidden_size": 2048,
    "intermediate_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "max_position_embeddings": 4096,
    "clip_qkv": None,
    "num_experts_per_tok": 8,
    "num_local_experts": 64,
    "norm_topk_prob": False,
}


def config(fields: ForeignConfig) -> Config:
    """Experts of width ``intermediate_size``."""
    d_mlp, renormalised = fields.integer("intermediate_size"), fields.flag("norm_topk_prob")
    experts = mixtral.mixture(fields, d_mlp, renormalised=renormalised)
    attention = replace(olmo2.attention(fields), clip=olmo.clip_of(fields))
    return llama.of_parts(fields, attention, experts)


def weights(config: Config, fields: ForeignConfig) -> Table:
    """The same block in every layer."""
    stack = config.stacks["decoder"]
    if stack.mlp is None:
        raise TypeError("weights: this stack has no experts.")
    block = {
        **llama.attention_and_norms(stack),
        **olmo2.gains_by_head(stack.attention),
        **mixtral.experts(fields, stack.mlp, qwen3_moe.NAMES),
    }
    return llama.decoder(config, fields, block)


FAMILIES = [
    replace(
        llama.LLAMA,
        name="OLMoE",
        model_types=("olmoe",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        aliases={"num_experts": "num_local_experts"},
    )
]
