"""Qwen3-MoE (Yang et al. 2025, arXiv:2505.09388): Qwen3 with experts in all or some layers.

The weights of the selected experts are divided by their sum only if ``norm_topk_prob`` is set.
Every ``decoder_sparse_step``-th layer has experts, except those of ``mlp_only_layers``.
"""

from dataclasses import replace
from typing import Any

from interp.config import Config, LayerConfig
from interp.loading.families import llama, mixtral
from interp.loading.families.qwen3 import normed_attention
from interp.loading.foreign_config import ForeignConfig
from interp.loading.sliding_window import window
from interp.loading.weight import Table

DEFAULTS: dict[str, Any] = {
    **llama.DEFAULTS,
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 24,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "decoder_sparse_step": 1,
    "moe_intermediate_size": 768,
    "num_experts_per_tok": 8,
    "num_local_experts": 128,
    "norm_topk_prob": False,
}
NAMES = ("gate_proj", "up_proj", "down_proj")


def config(fields: ForeignConfig) -> Config:
    """Experts in all layers except the dense ones; a window in all layers, if enabled."""
    has_window = fields.flag("use_sliding_window")
    if has_window:
        fields.allow_only("max_window_layers")
    attention = normed_attention(fields, window=window(fields) if has_window else None)
    mlp, dense = llama.gated_mlp(fields), dense_layers(fields)
    if len(dense) == fields.integer("num_hidden_layers"):
        return llama.of_parts(fields, attention, mlp)
    renormalised, d_mlp = fields.flag("norm_topk_prob"), fields.integer("moe_intermediate_size")
    experts = mixtral.mixture(fields, d_mlp, renormalised=renormalised)
    exceptions = (LayerConfig(dense, mlp=mlp),) if dense else ()
    return llama.of_parts(fields, attention, experts, exceptions=exceptions)


def dense_layers(fields: ForeignConfig) -> tuple[int, ...]:
    """The layers without experts."""
    layers = range(fields.integer("num_hidden_layers"))
    if fields["num_local_experts"] == 0:
        return tuple(layers)
    listed, step = fields.get("mlp_only_layers", []), fields.integer("decoder_sparse_step")
    if not isinstance(listed, list):
        raise fields.unsupported("mlp_only_layers", listed, "a list of layers")
    return tuple(n for n in layers if n in listed or (n + 1) % step)


def weights(config: Config, fields: ForeignConfig) -> Table:
    """Blocks with experts or with a gated MLP."""
    stack = config.stacks["decoder"]
    blocks: list[Table] = []
    for layer in range(stack.n_layers):
        mlp = stack.of_layer(layer).mlp
        block = llama.attention_and_norms(stack)
        if mlp is not None and mlp.experts is not None:
            blocks.append(block | mixtral.experts(fields, mlp, NAMES))
        else:
            blocks.append(block | llama.gated())
    return llama.of_blocks(config, fields, blocks)


FAMILIES = [
    replace(
        llama.LLAMA,
        name="Qwen3-MoE",
        model_types=("qwen3_moe",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        fields=(*llama.LLAMA.fields, "max_window_layers", "mlp_only_layers"),
        aliases={"num_experts": "num_local_experts"},
    )
]
