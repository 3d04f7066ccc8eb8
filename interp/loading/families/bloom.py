"""BLOOM (BigScience Workshop 2022, arXiv:2211.05100): ALiBi, and a norm after the embedding.

Queries, keys and values are one matrix, head by head. Residual connections may start after a norm.
"""

from typing import Any

from interp.config import (
    AttentionConfig,
    Config,
    EmbeddingConfig,
    MLPConfig,
    NormConfig,
    PositionsConfig,
    StackConfig,
)
from interp.loading.families.neox import qkv_by_head
from interp.loading.family import Family
from interp.loading.foreign_config import ForeignConfig
from interp.loading.settings import plain_exit
from interp.loading.weight import (
    Table,
    attention_output,
    each_layer,
    from_key,
    mlp,
    norm,
    prefixed,
    unembedding,
)

DEFAULTS: dict[str, Any] = {
    "vocab_size": 250880,
    "hidden_size": 64,
    "n_layer": 2,
    "n_head": 8,
    "layer_norm_epsilon": 1e-5,
    "apply_residual_connection_post_layernorm": False,
    "pretraining_tp": 1,
    "slow_but_exact": False,
    "seq_length": 2048,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""``seq_length`` is the sequence length of training, which ``transformers`` does not enforce."""


def config(fields: ForeignConfig) -> Config:
    """An MLP of width 4·d_model."""
    _check_slices(fields)
    d_model, n_heads = fields.integer("hidden_size"), fields.integer("n_head")
    eps = fields.number("layer_norm_epsilon")
    after_norm = fields.flag("apply_residual_connection_post_layernorm")
    return Config(
        d_model=d_model,
        d_vocab=fields.integer("vocab_size"),
        n_ctx=fields.integer("seq_length"),
        **plain_exit(fields),
        decoder=StackConfig(
            n_layers=fields.integer("n_layer"),
            attention=AttentionConfig(n_heads, d_model // n_heads),
            mlp=MLPConfig(4 * d_model, "gelu_bloom"),
            norm=NormConfig(placement="stream" if after_norm else "pre", eps=eps),
            positions=PositionsConfig(kind="alibi"),
            embedding=EmbeddingConfig(norm=NormConfig(eps=eps)),
        ),
    )


def _check_slices(fields: ForeignConfig) -> None:
    """Refuse sliced products, in which ``transformers`` omits two biases."""
    if fields.flag("slow_but_exact") and fields.integer("pretraining_tp") > 1:
        raise fields.unsupported("slow_but_exact", value=True, expected="False")


def weights(config: Config, fields: ForeignConfig) -> Table:
    """The fused matrix is reordered from heads to queries, keys and values."""
    stack = config.stacks["decoder"]
    block = {
        **norm("ln1", "input_layernorm"),
        **qkv_by_head("self_attention.query_key_value", stack.attention),
        **attention_output("self_attention.dense"),
        **norm("ln2", "post_attention_layernorm"),
        **mlp("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    }
    table = {
        "weight_e": from_key("word_embeddings.weight"),
        **norm("embed_norm", "word_embeddings_layernorm"),
        **each_layer(stack.n_layers, block, "h.{}."),
        **norm("final_norm", "ln_f"),
    }
    return prefixed("decoder.", table) | unembedding(fields.unembedding)


FAMILIES = [
    Family(
        name="BLOOM",
        model_types=("bloom",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        unread=("n_inner", "offset_alibi", "skip_bias_add", "skip_bias_add_qkv"),
        aliases={
            "n_embed": "hidden_size",
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
        },
        renames=((r"^transformer\.", ""),),
        embedding="word_embeddings.weight",
    ),
]
