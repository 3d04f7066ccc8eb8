"""From a configuration of TransformerLens to one of this package, and back.

The model that is built has untied weights and a bias wherever TransformerLens has one, so that
every parameter of theirs is one of it.
"""

from dataclasses import replace
from typing import Any

from interp.compat.config import HookedTransformerConfig
from interp.config import (
    NO_NORM,
    AttentionConfig,
    Config,
    EmbeddingConfig,
    LayerConfig,
    MLPConfig,
    NormConfig,
    PositionsConfig,
    ScalingConfig,
    StackConfig,
)
from interp.config.parts import Activation
from interp.errors import InvalidConfig

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
"""The activation function that the core computes; SoLU takes its place (:mod:`.activations`)."""
NAME_OF = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "gelu_bloom": "gelu_fast",
    "silu": "silu",
}
NORMS = {"LN": "layernorm", "LNPre": "layernorm", "RMS": "rmsnorm", "RMSPre": "rmsnorm"}
WRITE_NORM = ("Olmo2ForCausalLM", "Olmo3ForCausalLM")
"""Architectures with x + norm(f(x))."""
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "num_experts": (None,),
    "clip_qkv": (None,),
    "use_logn_attn": (False,),
    "use_dynamic_ntk_rope": (False,),
    "final_rms": (False,),
    "load_in_4bit": (False,),
    "n_devices": (1,),
    "use_yarn_rope": (False,),
    "use_attention_sinks": (False,),
    "use_hook_tokens": (False,),
    "rotary_base_local": (None,),
    "quantization_method": (None,),
    "ungroup_grouped_query_attention": (False,),
}
"""The values that are supported, of fields that otherwise are not."""
_KINDS = {"standard": "learned", "rotary": "rotary", "alibi": "alibi"}


def core_config(cfg: HookedTransformerConfig) -> Config:
    """The configuration of the model that computes what TransformerLens's does.

    Raises:
        InvalidConfig: a setting is not supported; the message names it.
    """
    _check(cfg)
    if cfg.d_vocab < 1:
        raise InvalidConfig("Give d_vocab=, or a tokenizer that it can be read from.")
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
    if cfg.positional_embedding_type not in _KINDS:
        raise InvalidConfig(
            f"positional_embedding_type={cfg.positional_embedding_type!r} is not supported; it "
            f"must be one of {', '.join(_KINDS)}."
        )
    if cfg.post_embedding_ln and cfg.positional_embedding_type == "standard":
        raise InvalidConfig(
            "post_embedding_ln=True is supported without learned positions only (BLOOM)."
        )
    if cfg.normalization_type is not None and cfg.normalization_type not in NORMS:
        raise InvalidConfig(
            f"normalization_type={cfg.normalization_type!r} must be None or one of "
            f"{', '.join(NORMS)}."
        )
    if not cfg.attn_only and cfg.act_fn not in ACTIVATION_OF:
        raise InvalidConfig(
            f"act_fn={cfg.act_fn!r} is not supported; it must be one of {', '.join(ACTIVATION_OF)}."
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
    over_all = cfg.original_architecture in WRITE_NORM
    qk_norm = cfg.use_qk_norm or over_all
    return AttentionConfig(
        n_heads=cfg.n_heads,
        d_head=cfg.d_head,
        n_kv_heads=cfg.n_key_value_heads,
        scale=float(cfg.attn_scale) if cfg.use_attn_scale else 1.0,
        bidirectional=cfg.attention_dir == "bidirectional",
        cap=_cap(cfg.attn_scores_soft_cap),
        qk_norm=NormConfig("rmsnorm", bias=False, eps=cfg.eps) if qk_norm else None,
        qk_norm_over="heads" if over_all else "head",
    )


def _mlp(cfg: HookedTransformerConfig) -> MLPConfig:
    # The b_in of a gated MLP is added after the product, unlike the core's.
    width = cfg.d_mlp or 4 * cfg.d_model
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
    kind: Any = _KINDS[cfg.positional_embedding_type]
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
    """Layers whose attention is local, or whose divisor grows with the layer."""
    made: list[LayerConfig] = []
    for layer in range(cfg.n_layers):
        own = plain
        if cfg.use_local_attn and (cfg.attn_types or [])[layer] == "local":
            own = replace(own, window=cfg.window_size)
        if cfg.scale_attn_by_inverse_layer_idx:
            own = replace(own, scale=plain.divisor * (layer + 1))
        if own != plain:
            made.append(LayerConfig((layer,), attention=own))
    return tuple(made)


def _cap(value: float | None) -> float | None:
    return value if value is not None and value > 0 else None


# ---- the other way -------------------------------------------------------------------------------


def hooked_config(config: Config) -> HookedTransformerConfig:
    """The configuration of TransformerLens for a model of this package.

    Raises:
        InvalidConfig: TransformerLens has no such architecture; the message says why.
    """
    stack = config.decoder
    if stack is None or config.encoder is not None:
        raise InvalidConfig(
            f"{config.name or 'This model'} is no decoder; HookedTransformer takes decoders. "
            "interp.load reads it."
        )
    _check_expressible(config, stack)
    attention, norm, mlp = stack.attention, stack.norm, stack.mlp
    scales = [stack.of_layer(layer).attention.divisor for layer in range(stack.n_layers)]
    by_layer = len(set(scales)) > 1
    windows = [stack.of_layer(layer).attention.window for layer in range(stack.n_layers)]
    local = any(windows)
    kind = {"layernorm": "LN", "rmsnorm": "RMS", "none": None}[norm.kind]
    return HookedTransformerConfig(
        d_model=config.d_model,
        d_head=attention.d_head,
        n_layers=stack.n_layers,
        n_ctx=config.n_ctx,
        n_heads=attention.n_heads,
        d_mlp=None if mlp is None else mlp.d_mlp,
        d_vocab=config.d_vocab,
        d_vocab_out=config.n_logits,
        device="cpu",
        n_key_value_heads=attention.n_kv_heads,
        attn_only=mlp is None,
        gated_mlp=mlp is not None and mlp.gated,
        act_fn="relu" if mlp is None else NAME_OF[mlp.activation],
        eps=norm.eps,
        normalization_type=kind,
        uses_rms_norm=kind == "RMS",
        model_name=config.name or "custom",
        attn_scale=scales[0],
        scale_attn_by_inverse_layer_idx=by_layer,
        attention_dir="bidirectional" if attention.bidirectional else "causal",
        use_local_attn=local,
        window_size=next((window for window in windows if window), None),
        attn_types=["local" if window else "global" for window in windows] if local else None,
        parallel_attn_mlp=norm.placement.startswith("parallel"),
        use_normalization_before_and_after=norm.placement == "sandwich",
        original_architecture=WRITE_NORM[0] if norm.placement == "write" else None,
        use_qk_norm=attention.qk_norm is not None and attention.qk_norm_over == "head",
        post_embedding_ln=stack.embedding.norm is not None,
        attn_scores_soft_cap=attention.cap or -1.0,
        output_logits_soft_cap=config.logit_cap or -1.0,
        tie_word_embeddings=config.tied,
        **_position_fields(stack.positions),
    )


def _position_fields(positions: PositionsConfig) -> dict[str, Any]:
    scaling = positions.scaling
    fields: dict[str, Any] = {
        "positional_embedding_type": {"learned": "standard"}.get(positions.kind, positions.kind)
    }
    if positions.kind == "rotary":
        fields |= {"rotary_base": positions.base, "rotary_dim": positions.d_rotary}
        fields["rotary_adjacent_pairs"] = positions.layout == "interleaved"
    if scaling is not None and scaling.kind == "linear":
        fields["rotary_scaling_factor"] = scaling.factor
    if scaling is not None and scaling.kind == "llama3":
        fields |= {
            "use_NTK_by_parts_rope": True,
            "NTK_by_parts_factor": scaling.factor,
            "NTK_original_ctx_len": scaling.original_ctx,
            "NTK_by_parts_low_freq_factor": scaling.low,
            "NTK_by_parts_high_freq_factor": scaling.high,
        }
    return fields


def _check_expressible(config: Config, stack: StackConfig) -> None:
    mlps = {layer.mlp for layer in stack.kinds_of_layers()}
    positions, scaling = {s.positions for s in stack.kinds_of_layers()}, stack.positions.scaling
    windows = {s.attention.window for s in stack.kinds_of_layers()} - {None}
    scales = [stack.of_layer(layer).attention.divisor for layer in range(stack.n_layers)]
    grows = all(abs(s - scales[0] * (n + 1)) < 1e-9 * s for n, s in enumerate(scales))
    mlp, norm = stack.mlp, stack.norm
    problems = {
        "a mixture of experts": mlp is not None and mlp.experts is not None,
        "layers with different MLPs": len(mlps) > 1,
        "layers with different positions": len(positions) > 1,
        "windows of several sizes": len(windows) > 1,
        "scales that differ between layers": len(set(scales)) > 1 and not grows,
        "no unembedding": not config.unembeds,
        "a head or classes": config.head is not None or config.n_classes is not None,
        f"{stack.positions.kind} positions": stack.positions.kind not in _KINDS.values(),
        "this scaling of rotary positions": scaling is not None
        and scaling.kind not in ("linear", "llama3"),
        f"norms placed as {norm.placement}": norm.placement == "stream",
        "a gated MLP with biases": mlp is not None and mlp.gated and mlp.bias_in,
        "no final norm": norm.kind != "none" and not norm.final,
        "a narrower embedding": stack.embedding.width is not None,
        "token types": stack.embedding.n_types > 0,
        "this activation function": mlp is not None and mlp.activation not in NAME_OF,
    }
    found = [name for name, is_there in problems.items() if is_there]
    if found:
        raise InvalidConfig(
            f"HookedTransformer can't express {found[0]} of {config.name or 'this model'}; use "
            "the model of interp.load itself, whose run_with_cache and run_with_hooks take the "
            "same names."
        )
