"""Convert a configuration of TransformerLens to one of this package.

The model that is built has untied weights, and a bias wherever TransformerLens has one, so that it
has every parameter of TransformerLens's model.
"""

from dataclasses import replace
from typing import Any

from interp.compat.config import HookedTransformerConfig
from interp.compat.errors import InvalidConfig
from interp.config import (
    NO_NORM,
    Activation,
    AttentionConfig,
    Config,
    EmbeddingConfig,
    ExpertsConfig,
    LayerConfig,
    MLPConfig,
    NormConfig,
    PositionsConfig,
    ScalingConfig,
    StackConfig,
)

ACTIVATION_OF: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_bloom",
    "silu": "silu",
    "solu": "relu",
    "solu_ln": "relu",
}
"""The activation function that the core computes; SoLU replaces it (:mod:`.norms`)."""
NORMS = {"LN": "layernorm", "LNPre": "layernorm", "RMS": "rmsnorm", "RMSPre": "rmsnorm"}
WRITE_NORM = ("Olmo2ForCausalLM", "Olmo3ForCausalLM")
"""Architectures with x + norm(f(x))."""
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "clip_qkv": (None,),
    "use_logn_attn": (False,),
    "use_dynamic_ntk_rope": (False,),
    "load_in_4bit": (False,),
    "n_devices": (1,),
    "use_yarn_rope": (False,),
    "use_attention_sinks": (False,),
    "rotary_base_local": (None,),
    "quantization_method": (None,),
    "trust_remote_code": (False,),
}
"""Fields that are supported only with these values."""
WITHOUT_EFFECT = (
    *("uses_rms_norm", "layer_norm_folding", "tie_word_embeddings", "decoder_start_token_id"),
    *("from_checkpoint", "checkpoint_index", "checkpoint_label_type", "checkpoint_value"),
    *("relative_attention_max_distance", "relative_attention_num_buckets", "train_seq_length"),
    *("yarn_factor", "yarn_attention_factor", "yarn_beta_fast", "yarn_beta_slow"),
    *("yarn_original_max_position_embeddings", "yarn_truncate", "yarn_global_attn_only"),
    *("model_name", "n_params"),
)
"""Fields that only describe a model, or that TransformerLens reads only with refused fields."""
POSITIONS = {
    "standard": "learned",
    "rotary": "rotary",
    "alibi": "alibi",
    "shortformer": "learned",
}
"""Kinds of positions, and those of the core; in a shortformer, the parts of the façade compute."""


def core_config(cfg: HookedTransformerConfig) -> Config:
    """The configuration of the model that computes the same as TransformerLens's.

    Raises:
        InvalidConfig: a setting is not supported; the message names it.
    """
    _check(cfg)
    if cfg.d_vocab < 1:
        raise InvalidConfig("Set d_vocab=, or pass a tokenizer to read it from.")
    return Config(
        d_model=cfg.d_model,
        d_vocab=cfg.d_vocab,
        n_ctx=cfg.n_ctx,
        decoder=_stack(cfg),
        bias_u=True,
        n_classes=None if cfg.d_vocab_out in (-1, cfg.d_vocab) else cfg.d_vocab_out,
        logit_cap=_cap(cfg.output_logits_soft_cap),
        name=cfg.model_name,
    )


def _check(cfg: HookedTransformerConfig) -> None:
    for name, supported in UNSUPPORTED.items():
        value = getattr(cfg, name)
        if value not in supported:
            raise InvalidConfig(
                f"{name}={value!r} is not supported by interp.compat (only {supported[0]!r}); "
                "interp.load reads more architectures."
            )
    if cfg.positional_embedding_type not in POSITIONS:
        raise InvalidConfig(
            f"positional_embedding_type={cfg.positional_embedding_type!r} is not supported; it "
            f"must be one of {', '.join(POSITIONS)}."
        )
    if cfg.post_embedding_ln and cfg.positional_embedding_type == "standard":
        raise InvalidConfig(
            "post_embedding_ln=True is supported only without learned positions (BLOOM)."
        )
    _check_norms(cfg)
    if cfg.num_experts and cfg.act_fn.startswith("solu"):
        raise InvalidConfig(f"act_fn={cfg.act_fn!r} is not supported with num_experts=.")
    if not cfg.attn_only and cfg.act_fn not in ACTIVATION_OF:
        raise InvalidConfig(
            f"act_fn={cfg.act_fn!r} is not supported; it must be one of {', '.join(ACTIVATION_OF)}."
        )


def _check_norms(cfg: HookedTransformerConfig) -> None:
    if cfg.normalization_type is not None and cfg.normalization_type not in NORMS:
        raise InvalidConfig(
            f"normalization_type={cfg.normalization_type!r} must be None or one of "
            f"{', '.join(NORMS)}."
        )
    if cfg.final_rms and NORMS.get(str(cfg.normalization_type)) == "layernorm":
        raise InvalidConfig(
            "final_rms=True is not supported by interp.compat with LayerNorms in the blocks."
        )


def _stack(cfg: HookedTransformerConfig) -> StackConfig:
    attention, norm = _attention(cfg), _norm(cfg)
    embedding = EmbeddingConfig(norm=NormConfig(eps=cfg.eps) if cfg.post_embedding_ln else None)
    return StackConfig(
        n_layers=cfg.n_layers,
        attention=attention,
        mlp=None if cfg.attn_only else _mlp(cfg),
        norm=norm,
        positions=_positions(cfg),
        embedding=embedding,
        exceptions=_exceptions(cfg, attention),
    )


def _attention(cfg: HookedTransformerConfig) -> AttentionConfig:
    over_heads = cfg.original_architecture in WRITE_NORM
    qk_norm = cfg.use_qk_norm or over_heads
    return AttentionConfig(
        n_heads=cfg.n_heads,
        d_head=cfg.d_head,
        n_kv_heads=cfg.n_key_value_heads,
        scale=float(cfg.attn_scale) if cfg.use_attn_scale else 1.0,
        bidirectional=cfg.attention_dir == "bidirectional",
        cap=_cap(cfg.attn_scores_soft_cap),
        qk_norm=NormConfig("rmsnorm", bias=False, eps=cfg.eps) if qk_norm else None,
        qk_norm_over="heads" if over_heads else "head",
    )


def _mlp(cfg: HookedTransformerConfig) -> MLPConfig:
    width = cfg.d_mlp or 4 * cfg.d_model
    if cfg.num_experts is not None and cfg.experts_per_token is not None:
        experts = ExpertsConfig(cfg.num_experts, cfg.experts_per_token, cfg.norm_topk_prob)
        return MLPConfig(
            *(width, ACTIVATION_OF[cfg.act_fn]),
            gated=True,
            bias_in=False,
            bias_out=False,
            experts=experts,
        )
    # The b_in of a gated MLP is added after the product, unlike the core's.
    return MLPConfig(
        width, ACTIVATION_OF[cfg.act_fn], gated=cfg.gated_mlp, bias_in=not cfg.gated_mlp
    )


def _norm(cfg: HookedTransformerConfig) -> NormConfig:
    parallel = cfg.parallel_attn_mlp and not cfg.attn_only
    if cfg.normalization_type is None:
        return replace(NO_NORM, placement="parallel") if parallel else NO_NORM
    placement: Any = "parallel" if parallel else "pre"
    if cfg.use_normalization_before_and_after:
        placement = "sandwich"
    if cfg.original_architecture in WRITE_NORM:
        placement = "write"
    learned = cfg.normalization_type in ("LN", "RMS") or placement == "sandwich"
    kind: Any = NORMS[cfg.normalization_type]
    return NormConfig(
        kind, placement, gain=learned, bias=learned and kind == "layernorm", eps=cfg.eps
    )


def _positions(cfg: HookedTransformerConfig) -> PositionsConfig:
    kind: Any = POSITIONS[cfg.positional_embedding_type]
    if kind != "rotary":
        return PositionsConfig(kind)
    scaling = None
    if cfg.use_NTK_by_parts_rope:
        scaling = ScalingConfig(
            "llama3",
            factor=cfg.NTK_by_parts_factor,
            original_ctx=cfg.NTK_original_ctx_len,
            low=cfg.NTK_by_parts_low_freq_factor,
            high=cfg.NTK_by_parts_high_freq_factor,
        )
    elif cfg.rotary_scaling_factor != 1.0:
        scaling = ScalingConfig("linear", factor=cfg.rotary_scaling_factor)
    return PositionsConfig(
        kind,
        base=float(cfg.rotary_base),
        layout="interleaved" if cfg.rotary_adjacent_pairs else "half",
        d_rotary=cfg.rotary_dim,
        scaling=scaling,
    )


def _exceptions(cfg: HookedTransformerConfig, plain: AttentionConfig) -> tuple[LayerConfig, ...]:
    """Layers with local attention, or with a divisor of scores that grows with the layer."""
    exceptions: list[LayerConfig] = []
    for layer in range(cfg.n_layers):
        attention = plain
        if cfg.use_local_attn and (cfg.attn_types or [])[layer] == "local":
            attention = replace(attention, window=cfg.window_size)
        if cfg.scale_attn_by_inverse_layer_idx:
            attention = replace(attention, scale=plain.divisor * (layer + 1))
        if attention != plain:
            exceptions.append(LayerConfig((layer,), attention=attention))
    return tuple(exceptions)


def _cap(value: float | None) -> float | None:
    return value if value is not None and value > 0 else None
