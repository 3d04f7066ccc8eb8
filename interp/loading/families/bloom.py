"""BLOOM (BigScience Workshop 2022): distance lowers scores, and the embedding is normed.

Queries, keys and values are one matrix, head by head. The stream may be the normed one.
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
from interp.loading.foreign_config import Raw
from interp.loading.weight import Table, at, each_layer, linear, norm, under, unembedding

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
"""The length that it was trained on bounds nothing: theirs has no bound."""


def config(raw: Raw) -> Config:
    """Heads share d_model evenly; an MLP is four times as wide."""
    _slow_is_the_same(raw)
    d_model, n_heads = raw.whole("hidden_size"), raw.whole("n_head")
    eps = raw.number("layer_norm_epsilon")
    normed = raw.flag("apply_residual_connection_post_layernorm")
    return Config(
        d_model=d_model,
        d_vocab=raw.whole("vocab_size"),
        n_ctx=raw.whole("seq_length"),
        tied=raw.head == "tied",
        unembeds=raw.head != "none",
        decoder=StackConfig(
            n_layers=raw.whole("n_layer"),
            attention=AttentionConfig(n_heads, d_model // n_heads),
            mlp=MLPConfig(4 * d_model, "gelu_bloom"),
            norm=NormConfig(placement="stream" if normed else "pre", eps=eps),
            positions=PositionsConfig(kind="alibi"),
            embedding=EmbeddingConfig(norm=NormConfig(eps=eps)),
        ),
    )


def _slow_is_the_same(raw: Raw) -> None:
    """Refuse products in slices, which leave two biases out."""
    if raw.flag("slow_but_exact") and raw.whole("pretraining_tp") > 1:
        raise raw.refused("slow_but_exact", value=True, expected="False")


def weights(config: Config, raw: Raw) -> Table:
    """The joint product sorted into queries, keys and values."""
    stack = config.stacks["decoder"]
    block = {
        **norm("ln1", "input_layernorm"),
        **qkv_by_head("self_attention.query_key_value", stack.attention),
        **linear("attn.weight_o", "attn.b_O", "self_attention.dense"),
        **norm("ln2", "post_attention_layernorm"),
        **linear("mlp.weight_in", "mlp.b_in", "mlp.dense_h_to_4h"),
        **linear("mlp.weight_out", "mlp.b_out", "mlp.dense_4h_to_h"),
    }
    lines = {
        "weight_e": at("word_embeddings.weight"),
        **norm("embed_norm", "word_embeddings_layernorm"),
        **each_layer(stack.n_layers, block, "blocks", "h.{}."),
        **norm("final_norm", "ln_f"),
    }
    return under("decoder.", lines) | unembedding(raw.head)


FAMILIES = [
    Family(
        name="BLOOM",
        model_types=("bloom",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        aliases={
            "n_embed": "hidden_size",
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
        },
        names=((r"^transformer\.", ""),),
        embedding="word_embeddings.weight",
    ),
]
