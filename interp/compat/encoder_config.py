"""Convert configurations of TransformerLens's BERT and T5 to those of this package.

As for a decoder, the model that is built has untied weights, and a bias wherever TransformerLens
has one (:mod:`interp.compat.core_config`).
"""

from typing import Any

from interp.compat.config import HookedTransformerConfig
from interp.compat.core_config import ACTIVATION_OF
from interp.compat.errors import InvalidConfig
from interp.config import (
    AttentionConfig,
    Config,
    EmbeddingConfig,
    HeadConfig,
    MLPConfig,
    NormConfig,
    PositionsConfig,
    StackConfig,
)
from interp.loading import UNBOUNDED

N_TYPES = 2
"""Token types of TransformerLens's BERT."""
RELATIVE = "relative_positional_bias"
"""TransformerLens's name for the positions of T5."""
ONLY: dict[str, tuple[Any, ...]] = {
    "n_key_value_heads": (None,),
    "attn_only": (False,),
    "num_experts": (None,),
    "parallel_attn_mlp": (False,),
    "post_embedding_ln": (False,),
    "final_rms": (False,),
    "use_normalization_before_and_after": (False,),
    "use_qk_norm": (False,),
    "clip_qkv": (None,),
    "use_logn_attn": (False,),
    "use_local_attn": (False,),
    "use_attention_sinks": (False,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "output_logits_soft_cap": (-1.0, 0.0, None),
    "use_hook_tokens": (False,),
    "load_in_4bit": (False,),
    "quantization_method": (None,),
    "n_devices": (1,),
}
"""Fields that BERT and T5 support only with these values."""


def bert_core_config(cfg: HookedTransformerConfig) -> Config:
    """The configuration of the model that computes the same as TransformerLens's encoder.

    Norms are LayerNorms with gain and bias regardless of ``cfg.normalization_type``, as in
    TransformerLens.

    Raises:
        InvalidConfig: a setting is not supported; the message names it.
    """
    _check(cfg, positions="standard")
    norm = NormConfig(eps=cfg.eps)
    return Config(
        encoder=StackConfig(
            n_layers=cfg.n_layers,
            attention=_attention(cfg),
            mlp=_mlp(cfg),
            norm=NormConfig(placement="post", final=False, eps=cfg.eps),
            embedding=EmbeddingConfig(n_types=N_TYPES, norm=norm),
        ),
        n_ctx=cfg.n_ctx,
        head=HeadConfig("gelu", norm),
        **_common(cfg),
    )


def t5_core_config(cfg: HookedTransformerConfig) -> Config:
    """The configuration of the model that computes the same as TransformerLens's encoder–decoder.

    Norms are RMSNorms regardless of ``cfg.normalization_type``, as in TransformerLens.

    Raises:
        InvalidConfig: a setting is not supported; the message names it.
    """
    _check(cfg, positions=RELATIVE)
    n_buckets, largest = cfg.relative_attention_num_buckets, cfg.relative_attention_max_distance
    if n_buckets is None or largest is None:
        raise InvalidConfig(
            "Set relative_attention_num_buckets= and relative_attention_max_distance=, which "
            f"positional_embedding_type={RELATIVE!r} needs."
        )
    if cfg.attention_dir != "bidirectional":
        raise InvalidConfig(
            f"attention_dir={cfg.attention_dir!r} applies to the encoder, and must be "
            '"bidirectional"; the decoder is always causal.'
        )
    if cfg.attn_scores_soft_cap > 0:
        raise InvalidConfig("attn_scores_soft_cap= is not supported in an encoder–decoder.")
    stack = StackConfig(
        n_layers=cfg.n_layers,
        attention=_attention(cfg),
        mlp=_mlp(cfg),
        norm=NormConfig("rmsnorm", bias=False, eps=cfg.eps),
        positions=PositionsConfig("buckets", n_buckets=n_buckets, max_distance=largest),
    )
    return Config(
        encoder=stack,
        decoder=stack,
        n_ctx=UNBOUNDED,
        logit_scale=cfg.d_model**-0.5 if cfg.tie_word_embeddings else None,
        shared=True,
        **_common(cfg),
    )


def _common(cfg: HookedTransformerConfig) -> dict[str, Any]:
    return {
        "d_model": cfg.d_model,
        "d_vocab": cfg.d_vocab,
        "bias_u": True,
        "n_classes": None if cfg.d_vocab_out == cfg.d_vocab else cfg.d_vocab_out,
        "name": cfg.model_name,
    }


def _attention(cfg: HookedTransformerConfig) -> AttentionConfig:
    cap = cfg.attn_scores_soft_cap
    return AttentionConfig(
        n_heads=cfg.n_heads,
        d_head=cfg.d_head,
        scale=float(cfg.attn_scale) if cfg.use_attn_scale else 1.0,
        cap=cap if cap > 0 else None,
    )


def _mlp(cfg: HookedTransformerConfig) -> MLPConfig:
    # The b_in of a gated MLP is added after the product, unlike the core's.
    activation = ACTIVATION_OF[cfg.act_fn]
    return MLPConfig(
        cfg.d_mlp or 4 * cfg.d_model, activation, gated=cfg.gated_mlp, bias_in=not cfg.gated_mlp
    )


def _check(cfg: HookedTransformerConfig, positions: str) -> None:
    for name, supported in ONLY.items():
        value = getattr(cfg, name)
        if value not in supported:
            raise InvalidConfig(
                f"{name}={value!r} is not supported in an encoder (only {supported[0]!r})."
            )
    if cfg.positional_embedding_type != positions:
        raise InvalidConfig(
            f"positional_embedding_type={cfg.positional_embedding_type!r} must be {positions!r}."
        )
    activations = [name for name in ACTIVATION_OF if not name.startswith("solu")]
    if cfg.act_fn not in activations:
        raise InvalidConfig(f"act_fn={cfg.act_fn!r} must be one of {', '.join(activations)}.")
    if cfg.d_vocab < 1:
        raise InvalidConfig("Set d_vocab=, or pass a tokenizer to read it from.")
