"""Qwen1.5-MoE and Qwen2-MoE (Yang et al. 2024, arXiv:2407.10671): experts and a shared expert.

Every token also goes through a shared expert, whose output is multiplied by σ(x·w). Layers without
experts and the weights of experts are as in Qwen3-MoE; ``qkv_bias`` sets the biases of queries,
keys and values. If ``use_sliding_window`` is set, every second layer below ``max_window_layers``
(or each that ``layer_types`` names) has a window.
"""

from dataclasses import replace
from typing import Any

from interp.config import Config, LayerConfig
from interp.loading.families import llama, mixtral, qwen3_moe
from interp.loading.foreign_config import ForeignConfig
from interp.loading.sliding_window import enabled_window_types, sliding_layers
from interp.loading.weight import Table, linear, prefixed

DEFAULTS: dict[str, Any] = {
    **qwen3_moe.DEFAULTS,
    "intermediate_size": 5632,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "max_window_layers": 28,
    "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632,
    "num_experts_per_tok": 4,
    "num_local_experts": 60,
    "qkv_bias": True,
}
SHARED: Table = {
    **linear("mlp.shared.weight_gate", "", "mlp.shared_expert.gate_proj", biased=False),
    **linear("mlp.shared.weight_in", "", "mlp.shared_expert.up_proj", biased=False),
    **linear("mlp.shared.weight_out", "", "mlp.shared_expert.down_proj", biased=False),
    **linear("mlp.weight_shared", "", "mlp.shared_expert_gate", biased=False),
}


def config(fields: ForeignConfig) -> Config:
    """Experts in all layers except the dense ones; a window in some layers, if enabled."""
    attention = llama.grouped_attention(fields, biased=fields.flag("qkv_bias"), bias_o=False)
    last = fields.number("max_window_layers")
    types = enabled_window_types(fields, lambda layer: layer % 2 == 0 and layer < last)
    if not fields.flag("use_sliding_window"):
        fields = fields.replace(sliding_window=None)
    exceptions = sliding_layers(fields, types, attention)
    mlp, dense = llama.gated_mlp(fields), qwen3_moe.dense_layers(fields)
    if len(dense) == fields.integer("num_hidden_layers"):
        return llama.of_parts(fields, attention, mlp, exceptions=exceptions)
    renormalised, d_mlp = fields.flag("norm_topk_prob"), fields.integer("moe_intermediate_size")
    routed = mixtral.mixture(fields, d_mlp, renormalised=renormalised)
    if routed.experts is not None:
        d_shared = fields.integer("shared_expert_intermediate_size")
        routed = replace(routed, experts=replace(routed.experts, d_shared=d_shared))
    exceptions += (LayerConfig(dense, mlp=mlp),) if dense else ()
    return llama.of_parts(fields, attention, routed, exceptions=exceptions)


def weights(config: Config, fields: ForeignConfig) -> Table:
    """Like Qwen3-MoE, with the shared experts."""
    stack, table = config.stacks["decoder"], qwen3_moe.weights(config, fields)
    for layer in range(stack.n_layers):
        mlp = stack.of_layer(layer).mlp
        if mlp is not None and mlp.experts is not None:
            table |= prefixed(f"decoder.blocks.{layer}.", SHARED, f"layers.{layer}.")
    return table


FAMILIES = [
    replace(
        llama.LLAMA,
        name="Qwen2-MoE",
        model_types=("qwen2_moe",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        fields=(*llama.LLAMA.fields, "layer_types", "mlp_only_layers"),
        aliases={"num_experts": "num_local_experts"},
    )
]
