"""Falcon (Almazrouei et al. 2023, arXiv:2311.16867): 7B, 40B and 180B, and the RW models.

7B has attention and MLP in parallel after one norm, and one key/value head; 40B and 180B
(``new_decoder_architecture``) have a norm for each, and grouped-query attention. RW models have
ALiBi instead of rotary positions; its slopes and biases are rounded to bfloat16, and divided by
√d_head; the explicit attention of ``transformers`` ("eager") adds them twice, its fused one
("sdpa") once. Queries, keys and values are one matrix, whose row order depends on these settings.
"""

from typing import Any

from interp.config import (
    AttentionConfig,
    Config,
    MLPConfig,
    NormConfig,
    Placement,
    PositionsConfig,
    StackConfig,
)
from interp.loading.families import llama
from interp.loading.family import Family
from interp.loading.foreign_config import ForeignConfig
from interp.loading.rotary import FIELDS, context_length
from interp.loading.settings import biases, plain_exit
from interp.loading.weight import (
    Table,
    Weight,
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
    "vocab_size": 65024,
    "hidden_size": 4544,
    "num_hidden_layers": 32,
    "num_attention_heads": 71,
    "activation": "gelu",
    "layer_norm_epsilon": 1e-5,
    "alibi": False,
    "new_decoder_architecture": False,
    "multi_query": True,
    "parallel_attn": True,
    "bias": False,
    "max_position_embeddings": 2048,
    "rope_theta": 10_000.0,
    "bos_token_id": 11,
    "eos_token_id": 11,
}
NORMS: dict[Placement, dict[str, str]] = {
    "parallel": {"ln1": "ln_attn", "ln2": "ln_mlp"},
    "parallel_tied": {"ln1": "input_layernorm"},
    "pre": {"ln1": "input_layernorm", "ln2": "post_attention_layernorm"},
}
"""The names of the norms of each placement."""


def config(fields: ForeignConfig) -> Config:
    """``bias`` sets all biases of attention and MLP."""
    fields.allow_only("apply_residual_connection_post_layernorm", (False,))
    d_model, n_heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    biased, eps = fields.flag("bias"), fields.number("layer_norm_epsilon")
    d_mlp = fields.get("ffn_hidden_size", 4 * d_model)
    return Config(
        d_model=d_model,
        d_vocab=fields.integer("vocab_size"),
        n_ctx=context_length(fields),
        **plain_exit(fields),
        decoder=StackConfig(
            n_layers=fields.integer("num_hidden_layers"),
            attention=AttentionConfig(
                n_heads, d_model // n_heads, kv_heads(fields), **biases(qkv=biased, output=biased)
            ),
            mlp=MLPConfig(d_mlp, fields.activation("activation"), bias_in=biased, bias_out=biased),
            norm=NormConfig(placement=placement(fields), eps=eps),
            positions=positions(fields, d_model // n_heads),
        ),
    )


def kv_heads(fields: ForeignConfig) -> int:
    """Number of key/value heads: one with ``multi_query``, except in the new architecture."""
    n_heads = fields.integer("num_attention_heads")
    if fields.flag("new_decoder_architecture"):
        return fields.get("num_kv_heads", n_heads)
    if fields.flag("multi_query"):
        return 1
    fields.allow_only("num_kv_heads", (n_heads,))
    return n_heads


def placement(fields: ForeignConfig) -> Placement:
    """The new architecture is always parallel, by default with two norms."""
    if not fields.flag("new_decoder_architecture"):
        parallel = fields.flag("parallel_attn")
        fields.allow_only("num_ln_in_parallel_attn", (0, 1) if parallel else (0, 1, 2))
        return "parallel_tied" if parallel else "pre"
    if not fields.flag("parallel_attn"):
        raise fields.unsupported("parallel_attn", value=False, expected="True")
    fields.allow_only("num_ln_in_parallel_attn", (1, 2))
    return "parallel_tied" if fields.get("num_ln_in_parallel_attn", 2) == 1 else "parallel"


def positions(fields: ForeignConfig, d_head: int) -> PositionsConfig:
    """ALiBi, or rotary positions of whole heads."""
    if fields.flag("alibi"):
        return PositionsConfig(kind="alibi", bias_scale=d_head**-0.5, rounded=True)
    return llama.whole_head_rotary(fields)


def weights(config: Config, fields: ForeignConfig) -> Table:
    """The fused matrix is reordered to queries, keys and values."""
    stack = config.stacks["decoder"]
    biased = stack.attention.bias_q
    block = {
        **grouped_qkv("self_attention.query_key_value", stack.attention),
        **attention_output("self_attention.dense", biased=biased),
        **mlp("mlp.dense_h_to_4h", "mlp.dense_4h_to_h", biased=biased),
    }
    for name, source in NORMS[stack.norm.placement].items():
        block |= norm(name, source)
    table = {
        "weight_e": from_key("word_embeddings.weight"),
        **each_layer(stack.n_layers, block, "h.{}."),
        **norm("final_norm", "ln_f"),
    }
    return prefixed("decoder.", table) | unembedding(fields.unembedding)


def grouped_qkv(source: str, attention: AttentionConfig) -> Table:
    """One matrix with rows [kv_head][q … q k v][d_head], for any number of key/value heads."""
    n_heads, n_kv = attention.n_heads, attention.kv_heads

    def by_part(name: str) -> Weight:
        return from_key(f"{source}.{name}").group_grouped_qkv(n_kv, n_heads // n_kv)

    bias = by_part("bias") if attention.bias_q else None
    return fused_qkv(by_part("weight"), bias, n_heads * attention.d_head, n_kv * attention.d_head)


FAMILIES = [
    Family(
        name="Falcon",
        model_types=("falcon",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        fields=(
            *("apply_residual_connection_post_layernorm", "ffn_hidden_size", "num_kv_heads"),
            *("num_ln_in_parallel_attn", *FIELDS),
        ),
        unread=("ff_factor",),
        aliases={"n_embed": "hidden_size"},
        renames=((r"^transformer\.", ""),),
        ignored=(r"rotary_emb\.inv_freq$",),
        embedding="word_embeddings.weight",
        compared_attention="sdpa",
    )
]
