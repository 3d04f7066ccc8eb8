"""T5 1.0 and 1.1, Flan-T5 (Raffel et al. 2020, arXiv:1910.10683): encoder–decoder or encoder.

Pre-norm with RMSNorm, no biases, unscaled scores. A learned relative bias, one value for each head
and bucket of distances, is added to the scores; each stack stores its table in the first block.
Version 1.0 multiplies the last stream by d_model^-½ before the unembedding, 1.1 does not;
``tie_word_embeddings`` determines the version, whether or not the matrices are tied.
"""

from typing import Any

from interp.config import (
    AttentionConfig,
    Config,
    MLPConfig,
    NormConfig,
    PositionsConfig,
    StackConfig,
)
from interp.loading.family import Family
from interp.loading.foreign_config import ACTIVATIONS, ForeignConfig
from interp.loading.settings import UNBOUNDED, biases
from interp.loading.weight import (
    Table,
    attention_output,
    each_layer,
    from_key,
    norm,
    prefixed,
    separate_qkv,
    unembedding,
)

DEFAULTS: dict[str, Any] = {
    "vocab_size": 32128,
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 6,
    "num_heads": 8,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "layer_norm_epsilon": 1e-6,
    "feed_forward_proj": "relu",
    "is_encoder_decoder": True,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}
FEED_FORWARD: dict[str, tuple[Any, bool]] = {
    **{name: (activation, False) for name, activation in ACTIVATIONS.items()},
    **{f"gated-{name}": (activation, True) for name, activation in ACTIVATIONS.items()},
    "gated-gelu": ("gelu_tanh", True),
}
"""Values of ``feed_forward_proj``: the activation, and whether the MLP is gated."""

SHARED = "shared.weight"
EMBEDDING, ENCODER_EMBEDDING = "decoder.embed_tokens.weight", "encoder.embed_tokens.weight"


def config(fields: ForeignConfig) -> Config:
    """Two stacks of the same parts, or the encoder only."""
    fields.allow_only("is_decoder", (False,))
    d_model, d_vocab = fields.integer("d_model"), fields.integer("vocab_size")
    n_layers = fields.integer("num_layers")
    encoder = stack(fields, n_layers)
    if is_encoder_only(fields):
        return Config(d_model, d_vocab, UNBOUNDED, encoder=encoder, unembeds=False)
    unembeds = fields.unembedding != "none"
    return Config(
        d_model,
        d_vocab,
        UNBOUNDED,
        encoder=encoder,
        decoder=stack(fields, fields.get("num_decoder_layers", n_layers)),
        tied=fields.unembedding == "tied",
        unembeds=unembeds,
        logit_scale=d_model**-0.5 if unembeds and has_logit_scale(fields) else None,
        shared=ENCODER_EMBEDDING not in fields.weight_names,
    )


def is_encoder_only(fields: ForeignConfig) -> bool:
    """Whether there is no decoder."""
    if not fields.flag("is_encoder_decoder"):
        return True
    return fields.architecture_suffix("T5EncoderModel") is not None


def has_logit_scale(fields: ForeignConfig) -> bool:
    """Whether the last stream is multiplied by d_model^-½."""
    by_version = fields.get("tie_word_embeddings", True) is not False
    return bool(fields.nullable("scale_decoder_outputs", default=by_version))


def stack(fields: ForeignConfig, n_layers: int) -> StackConfig:
    """The encoder or the decoder."""
    bias = biases(qkv=False, output=False)
    n_heads, d_head = fields.integer("num_heads"), fields.integer("d_kv")
    return StackConfig(
        n_layers=n_layers,
        attention=AttentionConfig(n_heads, d_head, **bias, scale=1.0),
        mlp=mlp(fields),
        norm=NormConfig(kind="rmsnorm", bias=False, eps=fields.number("layer_norm_epsilon")),
        positions=PositionsConfig(
            kind="buckets",
            n_buckets=fields.integer("relative_attention_num_buckets"),
            max_distance=fields.integer("relative_attention_max_distance"),
        ),
    )


def mlp(fields: ForeignConfig) -> MLPConfig:
    """The MLP of ``feed_forward_proj``; ``dense_act_fn`` and ``is_gated_act`` take precedence."""
    activation, gated = fields.one_of("feed_forward_proj", FEED_FORWARD)
    if fields.get("dense_act_fn") is not None:
        activation = fields.activation("dense_act_fn")
    return MLPConfig(
        fields.integer("d_ff"),
        activation,
        gated=bool(fields.nullable("is_gated_act", default=gated)),
        bias_in=False,
        bias_out=False,
    )


def weights(config: Config, fields: ForeignConfig) -> Table:
    """All projections are separate matrices; each norm is stored with the part that reads it."""
    table = unembedding(fields.unembedding)
    is_pair = len(config.stacks) > 1
    for name, stack in config.stacks.items():
        has_copy = name == "encoder" and is_pair and not config.shared
        bias = f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        block = block_weights(stack, has_cross=is_pair and name == "decoder")
        lines = {
            "weight_e": from_key(ENCODER_EMBEDDING if has_copy else EMBEDDING),
            "ranges.weight": from_key(bias),
            **each_layer(stack.n_layers, block, f"{name}.block.{{}}.layer."),
            **norm("final_norm", f"{name}.final_layer_norm", bias=False),
        }
        table |= prefixed(f"{name}.", lines)
    return table


def block_weights(stack: StackConfig, *, has_cross: bool) -> Table:
    """The parts of a block, numbered in their order: attention, cross-attention, MLP."""
    parts = [attention("attn", "SelfAttention")]
    parts += [attention("cross_attn", "EncDecAttention")] if has_cross else []
    parts += [feed_forward(gated=stack.mlp is not None and stack.mlp.gated)]
    table: Table = {}
    for n, part in enumerate(parts):
        table |= norm(f"ln{n + 1}", f"{n}.layer_norm", bias=False) | prefixed("", part, f"{n}.")
    return table


def attention(name: str, source: str) -> Table:
    """Four matrices."""
    q, k, v = (f"{source}.{part}" for part in "qkv")
    output = attention_output(f"{source}.o", biased=False, name=name)
    return {**separate_qkv(q, k, v, biased=False, name=name), **output}


def feed_forward(*, gated: bool) -> Table:
    """Two matrices, or three if gated."""
    source = "DenseReluDense"
    table = {"mlp.weight_out": from_key(f"{source}.wo.weight")}
    if not gated:
        return table | {"mlp.weight_in": from_key(f"{source}.wi.weight")}
    return table | {
        "mlp.weight_gate": from_key(f"{source}.wi_0.weight"),
        "mlp.weight_in": from_key(f"{source}.wi_1.weight"),
    }


T5 = Family(
    name="T5",
    model_types=("t5",),
    config=config,
    weights=weights,
    defaults=DEFAULTS,
    fields=(
        *("dense_act_fn", "is_decoder", "is_gated_act", "num_decoder_layers"),
        "scale_decoder_outputs",
    ),
    unread=("n_positions",),
    aliases={
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    },
    # Early files have an unused table for cross-attention.
    ignored=(r"EncDecAttention\.relative_attention_bias\.weight$",),
    embedding=EMBEDDING,
    copies=(ENCODER_EMBEDDING,),
    tables=(SHARED, ENCODER_EMBEDDING, EMBEDDING, "lm_head.weight"),
    shared=SHARED,
    always_tied=True,
)
FAMILIES = [T5]
