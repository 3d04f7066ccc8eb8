"""Gemma 1, 2 and 3 (Gemma Team 2024 and 2025, arXiv:2403.08295, 2408.00118, 2503.19786), as text.

Embeddings are multiplied by √d_model, norms by 1 + what is learned; GeGLU; tied. Gemma 2 norms what
each step writes too, caps scores and logits, and gives every other layer a window. Gemma 3 norms
queries and keys, has one full layer in six, and turns heads by another base where there is a
window.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from interp.config import AttentionConfig, Config, EmbeddingConfig, MLPConfig, NormConfig
from interp.loading.families import llama
from interp.loading.family import Family
from interp.loading.foreign_config import ACTIVATIONS, Raw
from interp.loading.sliding_window import FULL, SLIDING, kinds, sliding
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


def config_1(raw: Raw) -> Config:
    """``gelu`` means its tanh form here, as the first files said it."""
    said = raw.activation("hidden_act")
    act = "gelu_tanh" if said == "gelu" else said
    raw.only("hidden_activation", tuple(name for name in ACTIVATIONS if ACTIVATIONS[name] == act))
    attention = llama.attention(raw, biased=raw.flag("attention_bias"))
    return of_parts(raw, attention=attention, mlp=geglu(raw, act), norm=offset_norm(raw))


def config_2(raw: Raw) -> Config:
    """Four norms a block; even layers have a window, if nothing else is said."""
    attention = scaled_attention(raw, cap=cap(raw, "attn_logit_softcapping"))
    slides = kinds(raw, lambda layer: layer % 2 == 0)
    return of_parts(
        raw,
        attention=attention,
        mlp=geglu(raw, raw.activation("hidden_activation")),
        norm=offset_norm(raw, placement="sandwich"),
        exceptions=sliding(raw, slides, attention),
    )


def config_3(raw: Raw) -> Config:
    """Full layers turn by one base (perhaps stretched), those with a window by another."""
    raw.only("attn_logit_softcapping")
    attention = scaled_attention(raw, qk_norm=offset_norm(raw))
    period = raw.whole("sliding_window_pattern")
    slides = kinds(raw, lambda layer: (layer + 1) % period != 0)
    local = llama.of_whole_heads(turned_in(raw, SLIDING))
    return of_parts(
        turned_in(raw, FULL),
        attention=attention,
        mlp=geglu(raw, raw.activation("hidden_activation")),
        norm=offset_norm(raw, placement="sandwich"),
        exceptions=sliding(raw, slides, attention, local),
    )


def of_parts(raw: Raw, **parts: Any) -> Config:  # noqa: ANN401 - fields of ours
    """Llama's shape, its embedding multiplied, its logits perhaps capped."""
    raw.only("use_bidirectional_attention", (False,))
    scaled = EmbeddingConfig(scale=raw.whole("hidden_size") ** 0.5)
    model = llama.of_parts(raw, embedding=scaled, **parts)
    return replace(model, logit_cap=cap(raw, "final_logit_softcapping") if model.unembeds else None)


def scaled_attention(raw: Raw, **rest: Any) -> AttentionConfig:  # noqa: ANN401 - fields of ours
    """Scores are divided by √``query_pre_attn_scalar``, whatever the width of a head."""
    scale = raw.number("query_pre_attn_scalar") ** 0.5
    return llama.attention(raw, biased=raw.flag("attention_bias"), scale=scale, **rest)


def offset_norm(raw: Raw, **rest: Any) -> NormConfig:  # noqa: ANN401 - fields of ours
    """RMSNorm whose gain is 1 + what is learned."""
    return llama.rms_norm(raw, unit_offset=True, **rest)


def geglu(raw: Raw, activation: Any) -> MLPConfig:  # noqa: ANN401 - a Literal of ours
    """act(x·W_gate) * (x·W_in)."""
    width = raw.whole("intermediate_size")
    return MLPConfig(width, activation, gated=True, bias_in=False, bias_out=False)


def cap(raw: Raw, name: str) -> float | None:
    """A bound, which null takes away."""
    return None if raw.said(name) is None else raw.number(name)


def turned_in(raw: Raw, kind: str) -> Raw:
    """The configuration as if all layers turned as those of one kind do.

    Older files name two bases, and stretch the full layers alone.

    Raises:
        ModelLoadError: one way of turning is told for both kinds, or one that is not known.
    """
    base = raw.number("rope_theta" if kind == FULL else "rope_local_base_freq")
    each = raw.get("rope_parameters")
    if each is None:
        told = raw.get("rope_scaling", {}) if kind == FULL else {}
    else:
        raw.only("rope_scaling")
        if not isinstance(each, Mapping) or set(each) - {FULL, SLIDING}:
            raise raw.refused("rope_parameters", each, f"an object for {FULL}, one for {SLIDING}")
        told = each.get(kind) or {}
    if not isinstance(told, Mapping):
        raise raw.refused(f"rope_parameters of {kind}", told, "an object")
    if not told.get("truncate", True):  # which is not read where it stands
        raise raw.refused("truncate", told["truncate"], "True")
    return raw.having(rope_parameters={"rope_theta": base, **told}, rope_scaling=None)


def sandwiched(config: Config, raw: Raw) -> Table:
    """With a norm before and one behind each part."""
    block = {
        **norm("ln1", "input_layernorm", bias=False),
        **llama.self_attention(config.stacks["decoder"].attention),
        **norm("ln1_post", "post_attention_layernorm", bias=False),
        **norm("ln2", "pre_feedforward_layernorm", bias=False),
        **llama.gated(),
        **norm("ln2_post", "post_feedforward_layernorm", bias=False),
    }
    return llama.decoder(config, raw, block)


FAMILIES = [
    Family(
        name=name,
        model_types=(model_type,),
        config=config,
        weights=weights,
        defaults=defaults,
        names=(llama.PREFIX,),
        ignored=llama.IGNORED,
        embedding="embed_tokens.weight",
    )
    for name, model_type, config, weights, defaults in (
        ("Gemma", "gemma", config_1, llama.weights, GEMMA_1),
        ("Gemma 2", "gemma2", config_2, sandwiched, GEMMA_2),
        ("Gemma 3 (text)", "gemma3_text", config_3, sandwiched, GEMMA_3),
    )
]
