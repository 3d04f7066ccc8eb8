"""StableLM 3B and StableLM 2 (Bellagente et al. 2024, arXiv:2402.17834).

Llama with LayerNorm and rotary positions for a quarter of each head. Attention and MLP may be in
parallel after one norm; queries, keys and values may have biases; each head of queries and keys may
have a LayerNorm of its own.
"""

from dataclasses import replace
from typing import Any

from interp.config import AttentionConfig, Config, NormConfig
from interp.loading.families import llama
from interp.loading.foreign_config import ForeignConfig
from interp.loading.rotary import FIELDS, rotary
from interp.loading.weight import Table, from_key, norm, stacked

DEFAULTS: dict[str, Any] = {
    "vocab_size": 50304,
    "hidden_size": 2560,
    "intermediate_size": 6912,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "layer_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "partial_rotary_factor": 0.25,
    "use_qkv_bias": False,
    "qk_layernorm": False,
    "use_parallel_residual": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
}


def config(fields: ForeignConfig) -> Config:
    """Norms of heads have no bias."""
    eps, normed = fields.number("layer_norm_eps"), fields.flag("qk_layernorm")
    attention = llama.grouped_attention(
        fields,
        biased=fields.flag("use_qkv_bias"),
        bias_o=False,
        qk_norm=NormConfig(bias=False, eps=eps) if normed else None,
        qk_norm_over="each_head" if normed else "head",
    )
    placement = "parallel_tied" if fields.flag("use_parallel_residual") else "pre"
    return llama.of_parts(
        fields,
        attention,
        llama.gated_mlp(fields),
        norm=NormConfig(placement=placement, eps=eps),
        positions=rotary(fields),
    )


def weights(config: Config, fields: ForeignConfig) -> Table:
    """The gains of the norms of heads are stored separately."""
    stack = config.stacks["decoder"]
    plain = replace(stack.attention, qk_norm=None, qk_norm_over="head")
    block = {**norm("ln1", "input_layernorm"), **llama.self_attention(plain), **llama.gated()}
    if stack.norm.placement == "pre":
        block |= norm("ln2", "post_attention_layernorm")
    if stack.attention.qk_norm is not None:
        block |= gains_of_heads(stack.attention)
    return llama.decoder(config, fields, block)


def gains_of_heads(attention: AttentionConfig) -> Table:
    """The gains of queries and keys, from one vector per head."""
    numbers = {"q": attention.n_heads, "k": attention.kv_heads}
    return {
        f"attn.{part}_norm.gain": stacked(
            *(from_key(f"self_attn.{part}_layernorm.norms.{head}.weight") for head in range(n))
        )
        for part, n in numbers.items()
    }


FAMILIES = [
    replace(
        llama.LLAMA,
        name="StableLM",
        model_types=("stablelm",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        fields=FIELDS,
        unread=(),
    )
]
