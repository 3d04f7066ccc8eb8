"""Phi-1, 1.5 and 2 (Gunasekar et al. 2023): attention and MLP side by side, both behind one norm.

Half of each head turns; everything has a bias, the unembedding too. Queries and keys of a head may
be normed.
"""

from typing import Any

from interp.config import Config, MLPConfig, NormConfig, StackConfig
from interp.loading.families.gptj import biased_exit, biased_unembedding
from interp.loading.families.llama import attention
from interp.loading.family import Family
from interp.loading.foreign_config import Raw
from interp.loading.rotary import longest, rotary
from interp.loading.weight import Table, at, each_layer, linear, norm, separate_qkv, under

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


def config(raw: Raw) -> Config:
    """Grouped heads, all biases."""
    eps = raw.number("layer_norm_eps")
    qk_norm = NormConfig(eps=eps) if raw.flag("qk_layernorm") else None
    return Config(
        d_model=raw.whole("hidden_size"),
        d_vocab=raw.whole("vocab_size"),
        n_ctx=longest(raw),
        **biased_exit(raw),
        decoder=StackConfig(
            n_layers=raw.whole("num_hidden_layers"),
            attention=attention(raw, biased=True, qk_norm=qk_norm),
            mlp=MLPConfig(raw.whole("intermediate_size"), raw.activation("hidden_act")),
            norm=NormConfig(placement="parallel_tied", eps=eps),
            positions=rotary(raw),
        ),
    )


def weights(config: Config, raw: Raw) -> Table:
    """Each projection by itself."""
    stack = config.stacks["decoder"]
    block = {
        **norm("ln1", "input_layernorm"),
        **separate_qkv("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        **linear("attn.weight_o", "attn.b_O", "self_attn.dense"),
        **linear("mlp.weight_in", "mlp.b_in", "mlp.fc1"),
        **linear("mlp.weight_out", "mlp.b_out", "mlp.fc2"),
    }
    if stack.attention.qk_norm is not None:
        block |= {
            **norm("attn.q_norm", "self_attn.q_layernorm"),
            **norm("attn.k_norm", "self_attn.k_layernorm"),
        }
    lines = {
        "weight_e": at("embed_tokens.weight"),
        **each_layer(stack.n_layers, block, "blocks", "layers.{}."),
        **norm("final_norm", "final_layernorm"),
    }
    return under("decoder.", lines) | biased_unembedding(config, raw)


FAMILIES = [
    Family(
        name="Phi-1, Phi-2",
        model_types=("phi",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        names=((r"^model\.", ""),),
        ignored=(r"rotary_emb\.inv_freq$",),
        embedding="embed_tokens.weight",
        ties=False,
    ),
]
