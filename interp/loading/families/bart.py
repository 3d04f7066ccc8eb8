"""BART (Lewis et al. 2020): an encoder and a decoder, post-norm as the original Transformer.

The sum of token and position is normed; positions are learned, and stand two rows further down in
their table. No last norms; the head is tied and adds a bias, ``final_logits_bias``.
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
from interp.loading.foreign_config import Raw
from interp.loading.weight import Table, at, each_layer, linear, norm, separate_qkv, under

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
ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}
EMBEDDING, ENCODER_EMBEDDING = "decoder.embed_tokens.weight", "encoder.embed_tokens.weight"
BIAS = "final_logits_bias"
OFFSET = 2
"""Rows of the table of positions that no token is at."""


def config(raw: Raw) -> Config:
    """Two towers whose heads and neurons may differ, of one vocabulary."""
    raw.only("normalize_embedding", (True,))
    raw.only("static_position_embeddings", (False,))
    raw.only("extra_pos_embeddings", (OFFSET,))
    return pair(
        raw,
        PositionsConfig(kind="learned"),
        EmbeddingConfig(scale=scale(raw), norm=NormConfig()),
        shared=ENCODER_EMBEDDING not in raw.keys,
    )


def pair(
    raw: Raw,
    positions: PositionsConfig,
    embedding: EmbeddingConfig,
    *,
    shared: bool,
    d_vocab: int | None = None,
    d_vocab_source: int | None = None,
) -> Config:
    """What all models of this shape have; vocabularies, if they are not what ``vocab_size`` says.

    Raises:
        ModelLoadError: an encoder or a decoder alone, or norms that stand elsewhere.
    """
    raw.only("is_encoder_decoder", (True,))
    raw.only("is_decoder", (False,))
    raw.only("normalize_before", (False,))
    raw.only("add_final_layer_norm", (False,))
    d_model = raw.whole("d_model")

    def stack(name: str) -> StackConfig:
        heads = raw.whole(f"{name}_attention_heads")
        return StackConfig(
            n_layers=raw.whole(f"{name}_layers"),
            attention=AttentionConfig(heads, d_model // heads),
            mlp=MLPConfig(raw.whole(f"{name}_ffn_dim"), raw.activation("activation_function")),
            norm=NormConfig(placement="post", final=False),
            positions=positions,
            embedding=embedding,
        )

    return Config(
        d_model=d_model,
        d_vocab=d_vocab or raw.whole("vocab_size"),
        d_vocab_source=d_vocab_source,
        n_ctx=raw.whole("max_position_embeddings"),
        encoder=stack("encoder"),
        decoder=stack("decoder"),
        tied=raw.head == "tied",
        unembeds=raw.head != "none" or BIAS in raw.keys,
        bias_u=BIAS in raw.keys,
        shared=shared,
    )


def scale(raw: Raw) -> float | None:
    """√d_model, if embeddings are multiplied by it."""
    return raw.whole("d_model") ** 0.5 if raw.flag("scale_embedding") else None


def weights(config: Config, raw: Raw) -> Table:
    """As of any pair; positions from the third row on, and the embedding's norm."""
    lines = pair_weights(config, raw)
    for name in config.stacks:
        entry = {
            "entry.W_pos": at(f"{name}.embed_positions.weight")[OFFSET:],
            **norm("embed_norm", f"{name}.layernorm_embedding"),
        }
        lines |= under(f"{name}.", entry)
    return lines


def pair_weights(config: Config, raw: Raw) -> Table:
    """Embeddings, blocks and the head of all models of this shape."""
    lines: Table = {"unembed.weight": at("lm_head.weight")} if raw.head == "own" else {}
    lines |= {"unembed.b_U": at(BIAS).then(Tensor.flatten)} if config.bias_u else {}
    for name, own in config.stacks.items():
        apart = name == "encoder" and not config.shared
        tower = {
            "weight_e": at(ENCODER_EMBEDDING if apart else EMBEDDING),
            **each_layer(own.n_layers, BLOCKS[name], "blocks", f"{name}.layers.{{}}."),
        }
        lines |= under(f"{name}.", tower)
    return lines


def attention(name: str, source: str) -> Table:
    """Four matrices and their biases."""
    q, k, v, out = (f"{source}.{part}_proj" for part in ("q", "k", "v", "out"))
    return {
        **separate_qkv(q, k, v, name=name),
        **linear(f"{name}.weight_o", f"{name}.b_O", out),
    }


MLP: Table = {
    **linear("mlp.weight_in", "mlp.b_in", "fc1"),
    **linear("mlp.weight_out", "mlp.b_out", "fc2"),
}
BLOCKS: dict[str, Table] = {
    "encoder": {
        **attention("attn", "self_attn"),
        **norm("ln1", "self_attn_layer_norm"),
        **MLP,
        **norm("ln2", "final_layer_norm"),
    },
    "decoder": {
        **attention("attn", "self_attn"),
        **norm("ln1", "self_attn_layer_norm"),
        **attention("cross_attn", "encoder_attn"),
        **norm("ln2", "encoder_attn_layer_norm"),
        **MLP,
        **norm("ln3", "final_layer_norm"),
    },
}

FAMILIES = [
    Family(
        name="BART",
        model_types=("bart",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        aliases=ALIASES,
        names=((r"^model\.", ""),),
        ignored=(r"^(encoder|decoder)\.version$",),
        embedding=EMBEDDING,
        copies=(ENCODER_EMBEDDING,),
        shared="shared.weight",
    ),
]
