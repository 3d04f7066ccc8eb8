"""GPT-NeoX (Black et al. 2022, arXiv:2204.06745), and Pythia (Biderman et al. 2023).

Attention and MLP in parallel, each with its own norm, unless ``use_parallel_residual`` is false; a
quarter of each head is rotated. Queries, keys and values are one matrix, head by head.
"""

from typing import Any

from interp.config import AttentionConfig, Config, MLPConfig, NormConfig, StackConfig
from interp.loading.family import Family
from interp.loading.foreign_config import ForeignConfig
from interp.loading.rotary import FIELDS, context_length, rotary
from interp.loading.settings import biases, plain_exit
from interp.loading.weight import (
    Table,
    attention_output,
    each_layer,
    from_key,
    fused_qkv,
    mlp,
    norm,
    prefixed,
    unembedding,
)

DEFAULTS: dict[str, Any] = {
    "vocab_size": 50432,
    "hidden_size": 6144,
    "num_hidden_layers": 44,
    "num_attention_heads": 64,
    "intermediate_size": 24576,
    "hidden_act": "gelu",
    "max_position_embeddings": 2048,
    "layer_norm_eps": 1e-5,
    "use_parallel_residual": True,
    "rotary_pct": 0.25,
    "rotary_emb_base": 10_000.0,
    "attention_bias": True,
    "bos_token_id": 0,
    "eos_token_id": 2,
}


def config(fields: ForeignConfig) -> Config:
    """``attention_bias`` sets all biases of attention."""
    d_model, n_heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    biased = fields.flag("attention_bias")
    bias = biases(qkv=biased, output=biased)
    placement = "parallel" if fields.flag("use_parallel_residual") else "pre"
    theta, fraction = fields.number("rotary_emb_base"), fields.number("rotary_pct")
    return Config(
        d_model=d_model,
        d_vocab=fields.integer("vocab_size"),
        n_ctx=context_length(fields),
        **plain_exit(fields),
        decoder=StackConfig(
            n_layers=fields.integer("num_hidden_layers"),
            attention=AttentionConfig(n_heads, d_model // n_heads, **bias),
            mlp=MLPConfig(fields.integer("intermediate_size"), fields.activation("hidden_act")),
            norm=NormConfig(placement=placement, eps=fields.number("layer_norm_eps")),
            positions=rotary(fields, theta=theta, fraction=fraction),
        ),
    )


def weights(config: Config, fields: ForeignConfig) -> Table:
    """The fused matrix is reordered from heads to queries, keys and values."""
    stack = config.stacks["decoder"]
    block = {
        **norm("ln1", "input_layernorm"),
        **qkv_by_head("attention.query_key_value", stack.attention),
        **attention_output("attention.dense", biased=stack.attention.bias_o),
        **norm("ln2", "post_attention_layernorm"),
        **mlp("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    }
    table = {
        "weight_e": from_key("embed_in.weight"),
        **each_layer(stack.n_layers, block, "layers.{}."),
        **norm("final_norm", "final_layer_norm"),
    }
    return prefixed("decoder.", table) | unembedding(fields.unembedding)


def qkv_by_head(source: str, attention: AttentionConfig) -> Table:
    """Queries, keys and values stored as one matrix, with rows [head][q k v][d_head]."""
    width, n_heads = attention.n_heads * attention.d_head, attention.n_heads
    weight = from_key(f"{source}.weight").group_qkv(n_heads)
    bias = from_key(f"{source}.bias").group_qkv(n_heads) if attention.bias_q else None
    return fused_qkv(weight, bias, width, width)


FAMILIES = [
    Family(
        name="GPT-NeoX, Pythia",
        model_types=("gpt_neox",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        fields=("head_dim", *FIELDS),
        unread=("is_decoder",),
        renames=((r"^gpt_neox\.", ""), (r"^embed_out\.", "lm_head.")),
        ignored=(r"^layers\.\d+\.attention\.(bias|masked_bias)$", r"rotary_emb\.inv_freq$"),
        embedding="embed_in.weight",
        tied=False,
    ),
]
