"""BART (Lewis et al. 2020, arXiv:1910.13461): a post-norm encoder–decoder.

The sum of token and position embeddings is normed. Positions are learned; the first two rows of
their table are unused. There are no final norms. The head is tied, with a bias
``final_logits_bias``.
"""

from typing import Any

from torch import Tensor

from interp.config import (
    AttentionConfig,
    Config,
    EmbeddingConfig,
    MLPConfig,
    NormConfig,
    PositionsConfig,
    StackConfig,
)
from interp.loading.family import Family
from interp.loading.foreign_config import ForeignConfig
from interp.loading.weight import (
    Table,
    attention_output,
    each_layer,
    from_key,
    mlp,
    norm,
    prefixed,
    separate_qkv,
    unembedding,
)

DEFAULTS: dict[str, Any] = {
    "vocab_size": 50265,
    "max_position_embeddings": 1024,
    "d_model": 1024,
    "encoder_layers": 12,
    "encoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "decoder_layers": 12,
    "decoder_attention_heads": 16,
    "decoder_ffn_dim": 4096,
    "activation_function": "gelu",
    "scale_embedding": False,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
SHARED = "shared.weight"
EMBEDDING, ENCODER_EMBEDDING = "decoder.embed_tokens.weight", "encoder.embed_tokens.weight"
BIAS = "final_logits_bias"
UNUSED_POSITIONS = 2


def config(fields: ForeignConfig) -> Config:
    """Learned positions and a norm of the embedding; one vocabulary."""
    allow_norms(fields, before=False)
    return with_learned_positions(fields)


def allow_norms(fields: ForeignConfig, *, before: bool) -> None:
    """Refuse norms in other places.

    Args:
        fields: the foreign configuration.
        before: whether norms come before each sub-layer, with a final norm, or after each sub-layer
            without one.
    """
    fields.allow_only("normalize_before", (before,))
    fields.allow_only("add_final_layer_norm", (before,))


def with_learned_positions(fields: ForeignConfig) -> Config:
    """Learned positions and a norm of the embedding; one vocabulary."""
    fields.allow_only("normalize_embedding", (True,))
    fields.allow_only("static_position_embeddings", (False,))
    fields.allow_only("extra_pos_embeddings", (UNUSED_POSITIONS,))
    return of_parts(
        fields,
        PositionsConfig(kind="learned"),
        EmbeddingConfig(scale=embedding_scale(fields), norm=NormConfig()),
        shared=ENCODER_EMBEDDING not in fields.weight_names,
    )


def of_parts(
    fields: ForeignConfig,
    positions: PositionsConfig,
    embedding: EmbeddingConfig,
    *,
    shared: bool,
    d_vocab: int | None = None,
    d_vocab_source: int | None = None,
) -> Config:
    """The configuration of an encoder–decoder whose stacks may differ in depth and width.

    Args:
        fields: the foreign configuration.
        positions: the positions of both stacks.
        embedding: the embedding of both stacks.
        shared: whether the stacks share one token embedding.
        d_vocab: size of the (decoder's) vocabulary; ``None`` means ``vocab_size``.
        d_vocab_source: size of the encoder's vocabulary, if it has its own.

    Raises:
        ModelLoadError: the model is an encoder or a decoder alone.
    """
    fields.allow_only("is_encoder_decoder", (True,))
    fields.allow_only("is_decoder", (False,))
    d_model, activation = fields.integer("d_model"), fields.activation("activation_function")

    def stack(name: str) -> StackConfig:
        n_heads = fields.integer(f"{name}_attention_heads")
        return StackConfig(
            n_layers=fields.integer(f"{name}_layers"),
            attention=AttentionConfig(n_heads, d_model // n_heads),
            mlp=MLPConfig(fields.integer(f"{name}_ffn_dim"), activation),
            norm=NormConfig(placement="post", final=False),
            positions=positions,
            embedding=embedding,
        )

    has_bias = BIAS in fields.weight_names
    return Config(
        d_model=d_model,
        d_vocab=d_vocab or fields.integer("vocab_size"),
        d_vocab_source=d_vocab_source,
        n_ctx=fields.integer("max_position_embeddings"),
        encoder=stack("encoder"),
        decoder=stack("decoder"),
        tied=fields.unembedding == "tied",
        unembeds=fields.unembedding != "none" or has_bias,
        bias_u=has_bias,
        shared=shared,
    )


def embedding_scale(fields: ForeignConfig) -> float | None:
    """√d_model if ``scale_embedding`` is set, else ``None``."""
    return fields.integer("d_model") ** 0.5 if fields.flag("scale_embedding") else None


def weights(config: Config, fields: ForeignConfig) -> Table:
    """Like :func:`shared_weights`, with the positions and the norm of the embedding."""
    table = shared_weights(config, fields)
    for name in config.stacks:
        positions = from_key(f"{name}.embed_positions.weight")[UNUSED_POSITIONS:]
        embed_norm = norm("embed_norm", f"{name}.layernorm_embedding")
        table |= prefixed(f"{name}.", {"entry.W_pos": positions, **embed_norm})
    return table


def shared_weights(config: Config, fields: ForeignConfig) -> Table:
    """Token embeddings, blocks and the head, under the names that all models of this shape use."""
    table = unembedding(fields.unembedding)
    table |= {"unembed.b_U": from_key(BIAS).map(Tensor.flatten)} if config.bias_u else {}
    for name, stack in config.stacks.items():
        has_copy = name == "encoder" and not config.shared
        lines = {
            "weight_e": from_key(ENCODER_EMBEDDING if has_copy else EMBEDDING),
            **each_layer(stack.n_layers, BLOCKS[name], f"{name}.layers.{{}}."),
        }
        table |= prefixed(f"{name}.", lines)
    return table


def attention(name: str, source: str) -> Table:
    """Four matrices and their biases."""
    q, k, v, out = (f"{source}.{part}_proj" for part in ("q", "k", "v", "out"))
    return {**separate_qkv(q, k, v, name=name), **attention_output(out, name=name)}


BLOCKS: dict[str, Table] = {
    "encoder": {
        **attention("attn", "self_attn"),
        **norm("ln1", "self_attn_layer_norm"),
        **mlp("fc1", "fc2"),
        **norm("ln2", "final_layer_norm"),
    },
    "decoder": {
        **attention("attn", "self_attn"),
        **norm("ln1", "self_attn_layer_norm"),
        **attention("cross_attn", "encoder_attn"),
        **norm("ln2", "encoder_attn_layer_norm"),
        **mlp("fc1", "fc2"),
        **norm("ln3", "final_layer_norm"),
    },
}

BART = Family(
    name="BART",
    model_types=("bart",),
    config=config,
    weights=weights,
    defaults=DEFAULTS,
    fields=(
        *("add_final_layer_norm", "extra_pos_embeddings", "is_decoder", "is_encoder_decoder"),
        *("normalize_before", "normalize_embedding", "static_position_embeddings"),
    ),
    unread=("add_bias_logits", "save_step"),
    aliases={
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    },
    renames=((r"^model\.", ""),),
    ignored=(r"^(encoder|decoder)\.version$",),
    embedding=EMBEDDING,
    copies=(ENCODER_EMBEDDING,),
    tables=(SHARED, "lm_head.weight", EMBEDDING, ENCODER_EMBEDDING),
    shared=SHARED,
)
FAMILIES = [BART]
