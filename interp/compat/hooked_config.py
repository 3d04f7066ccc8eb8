"""Convert a configuration of this package to one of TransformerLens, if it can express it."""

from typing import Any

from interp.compat.config import HookedTransformerConfig
from interp.compat.core_config import POSITIONS, WRITE_NORM
from interp.compat.errors import InvalidConfig
from interp.config import Config, PositionsConfig, StackConfig

NAME_OF = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "gelu_bloom": "gelu_fast",
    "silu": "silu",
}


def hooked_config(config: Config) -> HookedTransformerConfig:
    """The configuration of TransformerLens for a model of this package.

    Raises:
        InvalidConfig: TransformerLens has no such architecture; the message says why.
    """
    stack = config.decoder
    if stack is None or config.encoder is not None:
        raise InvalidConfig(
            f"{config.name or 'This model'} is not a decoder; HookedTransformer takes decoders. "
            "Use the model of interp.load itself."
        )
    _check_expressible(config, stack)
    attention, norm, mlp = stack.attention, stack.norm, stack.mlp
    scales = [stack.of_layer(layer).attention.divisor for layer in range(stack.n_layers)]
    by_layer = len(set(scales)) > 1
    windows = [stack.of_layer(layer).attention.window for layer in range(stack.n_layers)]
    local = any(windows)
    experts = None if mlp is None else mlp.experts
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
        num_experts=None if experts is None else experts.n_experts,
        experts_per_token=None if experts is None else experts.n_chosen,
        norm_topk_prob=experts is not None and experts.renormalised,
        act_fn="relu" if mlp is None else NAME_OF[mlp.activation],
        eps=norm.eps,
        normalization_type=kind,
        model_name=config.name or "custom",
        use_attn_scale=scales[0] != 1.0,
        attn_scale=scales[0] if scales[0] != 1.0 else -1.0,
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
    mlps = {layer.mlp for layer in stack.layer_kinds}
    positions, scaling = {s.positions for s in stack.layer_kinds}, stack.positions.scaling
    windows = {s.attention.window for s in stack.layer_kinds} - {None}
    scales = [stack.of_layer(layer).attention.divisor for layer in range(stack.n_layers)]
    grows = all(abs(s - scales[0] * (n + 1)) < 1e-9 * s for n, s in enumerate(scales))
    mlp, norm = stack.mlp, stack.norm
    problems = {
        "layers with different MLPs": len(mlps) > 1,
        "layers with different positions": len(positions) > 1,
        "windows of several sizes": len(windows) > 1,
        "scales that differ between layers": len(set(scales)) > 1 and not grows,
        "no unembedding": not config.unembeds,
        "a head or classes": config.head is not None or config.n_classes is not None,
        f"{stack.positions.kind} positions": stack.positions.kind not in POSITIONS.values(),
        "this scaling of rotary positions": scaling is not None
        and scaling.kind not in ("linear", "llama3"),
        f"norms placed as {norm.placement}": norm.placement == "stream",
        "attention sinks": any(s.attention.sinks for s in stack.layer_kinds),
        "a clamped gate": mlp is not None and mlp.clamp is not None,
        "attention without a norm": not all(s.attention.normed for s in stack.layer_kinds),
        "norms of single heads of queries and keys": stack.attention.qk_norm_over == "each_head",
        "a factor of what is written to the stream": stack.residual_scale is not None,
        "this kind of ALiBi": bool(stack.positions.bias_scale or stack.positions.rounded),
        "a factor of the logits": config.logit_scale is not None,
        "a gated MLP with biases": mlp is not None and mlp.gated and mlp.bias_in,
        "no final norm": norm.kind != "none" and not norm.final,
        "a narrower embedding": stack.embedding.width is not None
        or stack.embedding.sum_width is not None,
        "clipped queries, keys and values": stack.attention.clip is not None,
        "token types": stack.embedding.n_types > 0,
        "this activation function": mlp is not None and mlp.activation not in NAME_OF,
    }
    present = [name for name, is_there in problems.items() if is_there]
    if present:
        raise InvalidConfig(
            f"HookedTransformer can't express {present[0]} of {config.name or 'this model'}; use "
            "the model of interp.load itself, whose run_with_cache and run_with_hooks take the "
            "same names."
        )
