"""Command R (Cohere 2024) and Command A, R7B (Cohere 2025, arXiv:2504.00698): Cohere and Cohere 2.

Attention and MLP in parallel after one shared LayerNorm without bias, rotary positions in layout
``interleaved``, logits multiplied by ``logit_scale``, a tied head. Cohere may norm each head of
queries and keys, with a gain of its own. Cohere 2 has a window in three layers out of four; the
others have no positions.
"""

from dataclasses import replace
from typing import Any

from interp.config import AttentionConfig, Config, LayerConfig, NormConfig, PositionsConfig
from interp.loading.families import llama
from interp.loading.foreign_config import ForeignConfig
from interp.loading.sliding_window import FULL, layer_types, sliding_layers
from interp.loading.weight import Table, norm

DEFAULTS: dict[str, Any] = {
    "vocab_size": 256000,
    "hidden_size": 8192,
    "intermediate_size": 22528,
    "num_hidden_layers": 40,
    "num_attention_heads": 64,
    "hidden_act": "silu",
    "max_position_embeddings": 8192,
    "layer_norm_eps": 1e-5,
    "logit_scale": 0.0625,
    "attention_bias": False,
}
COHERE: dict[str, Any] = {**DEFAULTS, "rope_theta": 500_000.0, "use_qk_norm": False}
COHERE_2: dict[str, Any] = {
    **DEFAULTS,
    "rope_theta": 10_000.0,
    "sliding_window": 4096,
    "sliding_window_pattern": 4,
}


def config(fields: ForeignConfig) -> Config:
    """The same block in every layer; queries and keys may be normed."""
    qk_norm = layer_norm(fields) if fields.flag("use_qk_norm") else None
    attention = llama.grouped_attention(
        fields,
        biased=fields.flag("attention_bias"),
        qk_norm=qk_norm,
        qk_norm_over="head" if qk_norm is None else "each_head",
    )
    return of_parts(fields, attention)


def config_2(fields: ForeignConfig) -> Config:
    """Rotary positions and a window in some layers; neither in the others."""
    fields.allow_only("use_qk_norm", (False,))
    attention = llama.grouped_attention(fields, biased=fields.flag("attention_bias"))
    period = fields.integer("sliding_window_pattern")
    types = layer_types(fields, lambda layer: (layer + 1) % period != 0)
    full = tuple(layer for layer, kind in enumerate(types) if kind == FULL)
    none = (LayerConfig(full, positions=PositionsConfig(kind="none")),) if full else ()
    return of_parts(
        fields, attention, exceptions=(*none, *sliding_layers(fields, types, attention))
    )


def of_parts(fields: ForeignConfig, attention: AttentionConfig, **stack: Any) -> Config:  # noqa: ANN401
    """Like :func:`llama.of_parts`, with the norms, positions and scaled logits of Cohere."""
    model = llama.of_parts(
        fields,
        attention,
        llama.gated_mlp(fields),
        norm=layer_norm(fields, placement="parallel_tied"),
        positions=replace(llama.whole_head_rotary(fields), layout="interleaved"),
        **stack,
    )
    return replace(model, logit_scale=fields.number("logit_scale") if model.unembeds else None)


def layer_norm(fields: ForeignConfig, **settings: Any) -> NormConfig:  # noqa: ANN401
    """LayerNorm without bias; ``settings`` are further fields of :class:`NormConfig`."""
    return NormConfig(bias=False, eps=fields.number("layer_norm_eps"), **settings)


def weights(config: Config, fields: ForeignConfig) -> Table:
    """One norm per block."""
    block = {
        **norm("ln1", "input_layernorm", bias=False),
        **llama.self_attention(config.stacks["decoder"].attention),
        **llama.gated(),
    }
    return llama.decoder(config, fields, block)


FAMILIES = [
    replace(
        llama.LLAMA,
        name=name,
        model_types=(model_type,),
        config=config,
        weights=weights,
        defaults=defaults,
        fields=(*llama.LLAMA.fields, *fields),
        unread=unread,
        tied=True,
    )
    for name, model_type, config, defaults, fields, unread in (
        ("Cohere", "cohere", config, COHERE, (), ("model_max_length", "pretraining_tp")),
        (
            *("Cohere 2", "cohere2", config_2, COHERE_2, ("layer_types", "use_qk_norm")),
            (
                *("_sliding_window_pattern", "layer_switch", "order_of_interleaved_layers"),
                *("position_embedding_type", "rotary_pct", "use_embedding_sharing"),
                *("use_gated_activation", "use_parallel_block", "use_parallel_embedding"),
            ),
        ),
    )
]
