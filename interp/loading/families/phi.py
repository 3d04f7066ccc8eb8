"""Phi-1, 1.5 and 2 (Gunasekar et al. 2023, arXiv:2306.11644): parallel blocks with one shared norm.

Half of each head is rotated; all projections and the unembedding have biases. Queries and keys may
be normed over each head.
"""

from dataclasses import replace
from typing import Any

from interp.config import Config, MLPConfig, NormConfig, StackConfig
from interp.loading.families import llama
from interp.loading.families.gptj import biased_exit, biased_unembedding
from interp.loading.foreign_config import ForeignConfig
from interp.loading.rotary import context_length, rotary
from interp.loading.weight import (
    Table,
    attention_output,
    each_layer,
    from_key,
    mlp,
    norm,
    prefixed,
    separate_qkv,
)

DEFAULTS: dict[str, Any] = {
    "vocab_size": 51200,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 24,
    "num_attention_heads": 32,
    "hidden_act": "gelu_new",
    "max_position_embeddings": 2048,
    "layer_norm_eps": 1e-5,
    "partial_rotary_factor": 0.5,
    "qk_layernorm": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def config(fields: ForeignConfig) -> Config:
    """Grouped-query attention, with all biases."""
    eps = fields.number("layer_norm_eps")
    qk_norm = NormConfig(eps=eps) if fields.flag("qk_layernorm") else None
    return Config(
        d_model=fields.integer("hidden_size"),
        d_vocab=fields.integer("vocab_size"),
        n_ctx=context_length(fields),
        **biased_exit(fields),
        decoder=StackConfig(
            n_layers=fields.integer("num_hidden_layers"),
            attention=llama.grouped_attention(fields, biased=True, qk_norm=qk_norm),
            mlp=MLPConfig(fields.integer("intermediate_size"), fields.activation("hidden_act")),
            norm=NormConfig(placement="parallel_tied", eps=eps),
            positions=rotary(fields),
        ),
    )


def weights(config: Config, fields: ForeignConfig) -> Table:
    """All projections are separate matrices."""
    stack = config.stacks["decoder"]
    block = {
        **norm("ln1", "input_layernorm"),
        **separate_qkv("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        **attention_output("self_attn.dense"),
        **mlp("mlp.fc1", "mlp.fc2"),
    }
    if stack.attention.qk_norm is not None:
        block |= {
            **norm("attn.q_norm", "self_attn.q_layernorm"),
            **norm("attn.k_norm", "self_attn.k_layernorm"),
        }
    table = {
        "weight_e": from_key("embed_tokens.weight"),
        **each_layer(stack.n_layers, block, "layers.{}."),
        **norm("final_norm", "final_layernorm"),
    }
    return prefixed("decoder.", table) | biased_unembedding(config, fields)


FAMILIES = [
    replace(
        llama.LLAMA,
        name="Phi-1, Phi-2",
        model_types=("phi",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
    )
]
