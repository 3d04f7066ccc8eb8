"""Qwen3-MoE (Yang et al. 2025, arXiv:2505.09388): Qwen3 with experts in all or some layers.

The weights of the chosen experts are divided by their sum only where ``norm_topk_prob`` says so.
Every ``decoder_sparse_step``-th layer has experts, but for those of ``mlp_only_layers``.
"""

from typing import Any

from interp.config import Config, LayerConfig
from interp.loading.families import llama, mixtral
from interp.loading.families.qwen3 import normed_attention
from interp.loading.family import Family
from interp.loading.foreign_config import Raw
from interp.loading.sliding_window import window
from interp.loading.weight import Table, norm

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


def config(raw: Raw) -> Config:
    """Experts, but for the layers that have a plain MLP; the window, if there is one, in all."""
    raw.only("layer_types")
    slides = raw.flag("use_sliding_window")
    if slides:
        raw.only("max_window_layers")
    attention = normed_attention(raw, window=window(raw) if slides else None)
    plain, dense = llama.gated_mlp(raw), dense_layers(raw)
    if len(dense) == raw.whole("num_hidden_layers"):
        return llama.of_parts(raw, attention, plain)
    renormalised = raw.flag("norm_topk_prob")
    mlp = mixtral.mixture(raw, raw.whole("moe_intermediate_size"), renormalised=renormalised)
    exceptions = (LayerConfig(dense, mlp=plain),) if dense else ()
    return llama.of_parts(raw, attention, mlp, exceptions=exceptions)


def dense_layers(raw: Raw) -> tuple[int, ...]:
    """The layers that have no experts."""
    layers = range(raw.whole("num_hidden_layers"))
    if raw["num_local_experts"] == 0:
        return tuple(layers)
    named, step = raw.get("mlp_only_layers", []), raw.whole("decoder_sparse_step")
    if not isinstance(named, list):
        raise raw.refused("mlp_only_layers", named, "a list of layers")
    return tuple(n for n in layers if n in named or (n + 1) % step)


def weights(config: Config, raw: Raw) -> Table:
    """Each layer as its MLP is."""
    stack = config.stacks["decoder"]
    shared = {
        **norm("ln1", "input_layernorm", bias=False),
        **llama.self_attention(stack.attention),
        **norm("ln2", "post_attention_layernorm", bias=False),
    }
    blocks: list[Table] = []
    for layer in range(stack.n_layers):
        mlp = stack.of_layer(layer).mlp
        mixed = mlp if mlp and mlp.experts else None
        own = mixtral.experts(raw, mixed, NAMES) if mixed else llama.gated()
        blocks.append(shared | own)
    return llama.of_blocks(raw, blocks)


FAMILIES = [
    Family(
        name="Qwen3-MoE",
        model_types=("qwen3_moe",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        aliases={"num_experts": "num_local_experts"},
        names=(llama.PREFIX,),
        ignored=llama.IGNORED,
        embedding="embed_tokens.weight",
        ties=False,
    ),
]
