"""T5, 1.0 and 1.1, and Flan-T5 (Raffel et al. 2020): encoder and decoder, or the encoder alone.

Pre-norm with RMSNorm, no biases, scores without a scale. What is learned for each range of
distances is added to the scores: a table a stack, which stands in its first block. Where 1.0
multiplies the last stream by d_model^-½ before the unembedding, 1.1 does not; files tell which by
``tie_word_embeddings``, whether the two matrices are one or not.
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
from interp.loading.foreign_config import ACTIVATIONS, Raw
from interp.loading.weight import Table, at, each_layer, norm, separate_qkv, under

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
ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
    "head_dim": "d_kv",
}
ANY_LENGTH = 2**20
"""Its positions know no longest text: all far distances share a range."""

FEED_FORWARD: dict[str, tuple[Any, bool]] = {
    **{name: (ours, False) for name, ours in ACTIVATIONS.items()},
    **{f"gated-{name}": (ours, True) for name, ours in ACTIVATIONS.items()},
    "gated-gelu": ("gelu_tanh", True),
}
"""``feed_forward_proj``: the activation, and whether it opens a gate."""

EMBEDDING, ENCODER_EMBEDDING = "decoder.embed_tokens.weight", "encoder.embed_tokens.weight"


def config(raw: Raw) -> Config:
    """Two towers of the same parts, or one."""
    raw.only("is_decoder", (False,))
    d_model, d_vocab = raw.whole("d_model"), raw.whole("vocab_size")
    layers = raw.whole("num_layers")
    encoder = stack(raw, layers)
    if is_alone(raw):
        return Config(d_model, d_vocab, ANY_LENGTH, encoder=encoder, unembeds=False)
    unembeds = raw.head != "none"
    return Config(
        d_model,
        d_vocab,
        ANY_LENGTH,
        encoder=encoder,
        decoder=stack(raw, raw.get("num_decoder_layers", layers)),
        tied=raw.head == "tied",
        unembeds=unembeds,
        logit_scale=d_model**-0.5 if unembeds and is_scaled(raw) else None,
        shared=ENCODER_EMBEDDING not in raw.keys,
    )


def is_alone(raw: Raw) -> bool:
    """Whether there is an encoder and no decoder."""
    return not raw.flag("is_encoder_decoder") or raw.get("architectures") == ["T5EncoderModel"]


def is_scaled(raw: Raw) -> bool:
    """Whether the last stream is multiplied by d_model^-½."""
    said = raw.get("scale_decoder_outputs")
    return raw.get("tie_word_embeddings", True) is not False if said is None else bool(said)


def stack(raw: Raw, n_layers: int) -> StackConfig:
    """One tower."""
    return StackConfig(
        n_layers=n_layers,
        attention=AttentionConfig(
            raw.whole("num_heads"),
            raw.whole("d_kv"),
            bias_q=False,
            bias_k=False,
            bias_v=False,
            bias_o=False,
            scale=1.0,
        ),
        mlp=mlp(raw),
        norm=NormConfig(kind="rmsnorm", bias=False, eps=raw.number("layer_norm_epsilon")),
        positions=PositionsConfig(
            kind="buckets",
            n_buckets=raw.whole("relative_attention_num_buckets"),
            max_distance=raw.whole("relative_attention_max_distance"),
        ),
    )


def mlp(raw: Raw) -> MLPConfig:
    """What ``feed_forward_proj`` says, unless its two halves are told apart."""
    activation, gated = raw.one_of("feed_forward_proj", FEED_FORWARD)
    if raw.get("dense_act_fn") is not None:
        activation = raw.activation("dense_act_fn")
    return MLPConfig(
        raw.whole("d_ff"),
        activation,
        gated=raw.get("is_gated_act", gated),
        bias_in=False,
        bias_out=False,
    )


def weights(config: Config, raw: Raw) -> Table:
    """Each projection by itself; norms stand beside what reads them."""
    lines: Table = {"unembed.weight": at("lm_head.weight")} if raw.head == "own" else {}
    paired = len(config.stacks) > 1
    for name, own in config.stacks.items():
        apart = name == "encoder" and paired and not config.shared
        first = f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        block = parts_of(own, reads_encoder=paired and name == "decoder")
        tower = {
            "weight_e": at(ENCODER_EMBEDDING if apart else EMBEDDING),
            "ranges.weight": at(first),
            **each_layer(own.n_layers, block, "blocks", f"{name}.block.{{}}.layer."),
            **norm("final_norm", f"{name}.final_layer_norm", bias=False),
        }
        lines |= under(f"{name}.", tower)
    return lines


def parts_of(stack: StackConfig, *, reads_encoder: bool) -> Table:
    """The parts of a block, in the order in which they stand."""
    parts = [attention("attn", "SelfAttention")]
    parts += [attention("cross_attn", "EncDecAttention")] if reads_encoder else []
    parts += [feed_forward(gated=stack.mlp is not None and stack.mlp.gated)]
    lines: Table = {}
    for n, part in enumerate(parts):
        lines |= norm(f"ln{n + 1}", f"{n}.layer_norm", bias=False) | under("", part, f"{n}.")
    return lines


def attention(name: str, source: str) -> Table:
    """Four matrices."""
    q, k, v = (f"{source}.{part}" for part in "qkv")
    return {
        **separate_qkv(q, k, v, biased=False, name=name),
        f"{name}.weight_o": at(f"{source}.o.weight"),
    }


def feed_forward(*, gated: bool) -> Table:
    """Two matrices, or three."""
    source = "DenseReluDense"
    lines = {"mlp.weight_out": at(f"{source}.wo.weight")}
    if not gated:
        return lines | {"mlp.weight_in": at(f"{source}.wi.weight")}
    return lines | {
        "mlp.weight_gate": at(f"{source}.wi_0.weight"),
        "mlp.weight_in": at(f"{source}.wi_1.weight"),
    }


FAMILIES = [
    Family(
        name="T5",
        model_types=("t5",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        aliases=ALIASES,
        # A table that cross-attention had in early files, and never used.
        ignored=(r"EncDecAttention\.relative_attention_bias\.weight$",),
        embedding=EMBEDDING,
        copies=(ENCODER_EMBEDDING,),
        shared="shared.weight",
    ),
]
