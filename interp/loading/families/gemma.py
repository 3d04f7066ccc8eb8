"""Gemma 1, 2 and 3 (Gemma Team 2024 and 2025, arXiv:2403.08295, 2408.00118, 2503.19786), text only.

Llama with embeddings multiplied by √d_model, norms whose gain is 1 + the stored weight, GeGLU and a
tied head. Gemma 2 also norms the outputs of attention and MLP, soft-caps scores and logits, and has
a window in every other layer. Gemma 3 norms queries and keys, has one full layer in six, and
another base of rotary positions in layers with a window. Its models of 4B and more also read
images: their vision part is left out, with a warning.
"""

from dataclasses import replace
from typing import Any

from interp.config import AttentionConfig, Config, EmbeddingConfig, MLPConfig, NormConfig
from interp.loading.families import llama
from interp.loading.foreign_config import ACTIVATIONS, ForeignConfig
from interp.loading.rotary import with_rope_of
from interp.loading.sliding_window import FULL, SLIDING, layer_types, sliding_layers
from interp.loading.weight import Table, norm

GEMMA_1: dict[str, Any] = {
    "vocab_size": 256000,
    "hidden_size": 3072,
    "intermediate_size": 24576,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "attention_bias": False,
    "use_bidirectional_attention": False,
    "bos_token_id": 2,
    "eos_token_id": 1,
}
GEMMA_2: dict[str, Any] = {
    **GEMMA_1,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "final_logit_softcapping": 30.0,
    "attn_logit_softcapping": 50.0,
}
GEMMA_3: dict[str, Any] = {
    **GEMMA_2,
    "vocab_size": 262_208,
    "max_position_embeddings": 131_072,
    "final_logit_softcapping": None,
    "attn_logit_softcapping": None,
    "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0,
    "sliding_window_pattern": 6,
}


def config_1(fields: ForeignConfig) -> Config:
    """``hidden_act="gelu"`` means the tanh approximation, as in the first released files."""
    act = fields.activation("hidden_act")
    if fields["hidden_act"] == "gelu":
        act = "gelu_tanh"
    same = tuple(name for name in ACTIVATIONS if ACTIVATIONS[name] == act)
    fields.allow_only("hidden_activation", same)
    attention = llama.grouped_attention(fields, biased=fields.flag("attention_bias"))
    return of_parts(fields, attention=attention, mlp=geglu(fields, act), norm=offset_norm(fields))


def config_2(fields: ForeignConfig) -> Config:
    """Four norms per block; by default, even layers have a window."""
    attention = scaled_attention(fields, cap=cap(fields, "attn_logit_softcapping"))
    types = layer_types(fields, lambda layer: layer % 2 == 0)
    return of_parts(
        fields,
        attention=attention,
        mlp=geglu(fields, fields.activation("hidden_activation")),
        norm=offset_norm(fields, placement="sandwich"),
        exceptions=sliding_layers(fields, types, attention),
    )


def config_3(fields: ForeignConfig) -> Config:
    """Rotary positions differ between full layers, where they may be scaled, and sliding layers."""
    fields.allow_only("attn_logit_softcapping")
    attention = scaled_attention(fields, qk_norm=offset_norm(fields))
    period = fields.integer("sliding_window_pattern")
    types = layer_types(fields, lambda layer: (layer + 1) % period != 0)
    base, local_base = fields.number("rope_theta"), fields.number("rope_local_base_freq")
    local = llama.whole_head_rotary(with_rope_of(fields, SLIDING, local_base))
    return of_parts(
        with_rope_of(fields, FULL, base),
        attention=attention,
        mlp=geglu(fields, fields.activation("hidden_activation")),
        norm=offset_norm(fields, placement="sandwich"),
        exceptions=sliding_layers(fields, types, attention, local),
    )


def config_of_text(fields: ForeignConfig) -> Config:
    """The text part of Gemma 3 with vision, whose logits are not capped."""
    fields.allow_only("final_logit_softcapping")
    return config_3(fields)


def of_parts(fields: ForeignConfig, **parts: Any) -> Config:  # noqa: ANN401
    """Like :func:`llama.of_parts`, with a scaled embedding and optionally capped logits."""
    fields.allow_only("use_bidirectional_attention", (False,))
    embedding = EmbeddingConfig(scale=fields.integer("hidden_size") ** 0.5)
    model = llama.of_parts(fields, embedding=embedding, **parts)
    logit_cap = cap(fields, "final_logit_softcapping") if model.unembeds else None
    return replace(model, logit_cap=logit_cap)


def scaled_attention(fields: ForeignConfig, **attention: Any) -> AttentionConfig:  # noqa: ANN401
    """Attention with scores divided by √``query_pre_attn_scalar``."""
    scale, biased = fields.number("query_pre_attn_scalar") ** 0.5, fields.flag("attention_bias")
    return llama.grouped_attention(fields, biased=biased, scale=scale, **attention)


def offset_norm(fields: ForeignConfig, **settings: Any) -> NormConfig:  # noqa: ANN401
    """RMSNorm whose gain is 1 + the stored weight."""
    return llama.rms_norm(fields, unit_offset=True, **settings)


def geglu(fields: ForeignConfig, activation: Any) -> MLPConfig:  # noqa: ANN401
    """act(x·W_gate) * (x·W_in)."""
    width = fields.integer("intermediate_size")
    return MLPConfig(width, activation, gated=True, bias_in=False, bias_out=False)


def cap(fields: ForeignConfig, name: str) -> float | None:
    """A soft-cap; null means none."""
    return None if fields.nullable(name) is None else fields.number(name)


def sandwich_weights(config: Config, fields: ForeignConfig) -> Table:
    """One norm before and one after each attention and MLP."""
    block = {
        **norm("ln1", "input_layernorm", bias=False),
        **llama.self_attention(config.stacks["decoder"].attention),
        **norm("ln1_post", "post_attention_layernorm", bias=False),
        **norm("ln2", "pre_feedforward_layernorm", bias=False),
        **llama.gated(),
        **norm("ln2_post", "post_feedforward_layernorm", bias=False),
    }
    return llama.decoder(config, fields, block)


TEXT = [
    replace(
        llama.LLAMA,
        name=name,
        model_types=(model_type,),
        config=config,
        weights=weights,
        defaults=defaults,
        fields=(*llama.LLAMA.fields, "hidden_activation", "layer_types"),
        unread=("_sliding_window_pattern",),
        tied=True,
    )
    for name, model_type, config, weights, defaults in (
        ("Gemma", "gemma", config_1, llama.weights, GEMMA_1),
        ("Gemma 2", "gemma2", config_2, sandwich_weights, GEMMA_2),
        ("Gemma 3 (text)", "gemma3_text", config_3, sandwich_weights, GEMMA_3),
    )
]
WITH_VISION = replace(
    TEXT[-1],
    name="Gemma 3",
    model_types=("gemma3",),
    config=config_of_text,
    renames=((r"^model\.", ""), (r"^language_model\.", ""), (r"^model\.", "")),
    part="text_config",
    around=(
        *("boi_token_id", "boi_token_index", "eoi_token_id", "eoi_token_index", "image_token_id"),
        *("image_token_index", "mm_tokens_per_image", "vision_config"),
    ),
    left_out={r"^(vision_tower|multi_modal_projector)\.": "the vision part"},
)
FAMILIES = [*TEXT, WITH_VISION]
