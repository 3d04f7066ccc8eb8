"""Phi-3.5-MoE (Abdin et al. 2024, arXiv:2404.14219): Mixtral with LayerNorm and SparseMixer.

A token has two experts; ``router_jitter_noise`` sets the margin of their routing, in evaluation
mode too. Attention and the unembedding may have biases. With longrope, the context ends where the
factors of long texts would apply: ``transformers`` does not apply them, but the model's own code
does.
"""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from interp.config import Config, NormConfig
from interp.loading.families import llama, mixtral
from interp.loading.families.gptj import BIAS
from interp.loading.foreign_config import ForeignConfig
from interp.loading.rotary import PARAMETERS
from interp.loading.sliding_window import window
from interp.loading.weight import Table, from_key

DEFAULTS: dict[str, Any] = {
    **llama.DEFAULTS,
    "vocab_size": 32064,
    "intermediate_size": 6400,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1_000_000.0,
    "sliding_window": None,
    "num_local_experts": 16,
    "num_experts_per_tok": 2,
    "router_jitter_noise": 0.01,
    "lm_head_bias": False,
}
SCALES = ("short_mscale", "long_mscale")


def config(fields: ForeignConfig) -> Config:
    """LayerNorm, whose epsilon is called ``rms_norm_eps``; the unembedding may have a bias."""
    biased, width = fields.flag("attention_bias"), fields.integer("intermediate_size")
    mlp = mixtral.mixture(fields, width, renormalised=False)
    if mlp.experts is not None:
        margin = 2 * fields.number("router_jitter_noise")
        mlp = replace(mlp, experts=replace(mlp.experts, margin=margin))
    fields = with_longrope(fields)
    model = llama.of_parts(
        fields,
        llama.grouped_attention(fields, biased=biased, window=window(fields)),
        mlp,
        norm=NormConfig(eps=fields.number("rms_norm_eps")),
    )
    has_bias = model.unembeds and fields.flag("lm_head_bias")
    scaling = None if model.decoder is None else model.decoder.positions.scaling
    n_ctx = model.n_ctx if scaling is None else min(model.n_ctx, scaling.original_ctx)
    if n_ctx < model.n_ctx:
        warnings.warn(
            f"{fields.family}: the context ends at {n_ctx} tokens instead of {model.n_ctx}, since "
            "transformers ignores the long_factor of longer texts, which the model's own code "
            "applies.",
            UserWarning,
            stacklevel=6,  # the caller of interp.load
        )
    return replace(model, bias_u=has_bias, n_ctx=n_ctx)


def with_longrope(fields: ForeignConfig) -> ForeignConfig:
    """The same fields, with the usual name of the factor of cosines and sines.

    Raises:
        ModelLoadError: the scaling is not longrope.
    """
    rope = fields.get("rope_scaling") or fields.get("rope_parameters") or {}
    if not isinstance(rope, Mapping):
        raise fields.unsupported("rope_parameters", rope, "an object")
    rope_fields = ForeignConfig(fields.family, rope, {})
    name = rope_fields.get("rope_type", rope_fields.get("type", "default"))
    if name == "default":
        return fields
    if name != "longrope":
        raise fields.unsupported("rope_type", name, "default or longrope")
    for scale in SCALES:
        rope_fields.number(scale)
    others = {key: value for key, value in rope.items() if key not in SCALES}
    scaled = {**others, "attention_factor": rope_fields.number("short_mscale")}
    return fields.replace(rope_parameters=scaled, rope_scaling=None)


def weights(config: Config, fields: ForeignConfig) -> Table:
    """Like Mixtral, with the bias of the unembedding."""
    bias = {"unembed.b_U": from_key(BIAS)} if config.bias_u else {}
    return mixtral.weights(config, fields) | bias


FAMILIES = [
    replace(
        llama.LLAMA,
        name="Phi-3.5-MoE",
        model_types=("phimoe",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        unread=("input_jitter_noise",),
        objects=dict.fromkeys(("rope_parameters", "rope_scaling"), (*PARAMETERS, *SCALES)),
        renames=(
            *llama.LLAMA.renames,
            (r"\.block_sparse_moe\.", ".mlp."),
            (r"\.mlp\.router\.", ".mlp.gate."),
        ),
    )
]
