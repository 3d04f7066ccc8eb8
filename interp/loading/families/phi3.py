"""Phi-3 and Phi-4 (Abdin et al. 2024, arXiv:2404.14219, 2412.08905): Llama with fused matrices.

Queries, keys and values are one matrix, in this order; W_gate and W_in are another. Rotary
positions may rotate a part of each head, and may be scaled by longrope; in these files, ``su`` and
``yarn`` also mean longrope.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from interp.config import Config
from interp.loading.families import llama
from interp.loading.foreign_config import ForeignConfig
from interp.loading.rotary import rotary
from interp.loading.sliding_window import window
from interp.loading.weight import Table, attention_output, from_key, fused_qkv, gate_and_in, norm

DEFAULTS: dict[str, Any] = {
    **llama.DEFAULTS,
    "vocab_size": 32064,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "max_position_embeddings": 4096,
    "original_max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "sliding_window": None,
}
ROPE_TYPES = {"default": "default", "longrope": "longrope", "su": "longrope", "yarn": "longrope"}


def config(fields: ForeignConfig) -> Config:
    """A window in all layers, if ``sliding_window`` is set."""
    fields = with_longrope(fields)
    attention = llama.grouped_attention(fields, window=window(fields))
    return llama.of_parts(fields, attention, llama.gated_mlp(fields), positions=rotary(fields))


def with_longrope(fields: ForeignConfig) -> ForeignConfig:
    """The same fields, with the usual name of the scaling.

    Raises:
        ModelLoadError: the scaling is not longrope.
    """
    rope = fields.get("rope_scaling") or fields.get("rope_parameters") or {}
    if not isinstance(rope, Mapping):
        raise fields.unsupported("rope_parameters", rope, "an object")
    name = rope.get("rope_type", rope.get("type", "default"))
    rope_type = fields.replace(rope_type=name).one_of("rope_type", ROPE_TYPES)
    return fields.replace(rope_parameters={**rope, "rope_type": rope_type}, rope_scaling=None)


def weights(config: Config, fields: ForeignConfig) -> Table:
    """The fused matrices, split."""
    block = {
        **norm("ln1", "input_layernorm", bias=False),
        **fused_qkv(from_key("self_attn.qkv_proj.weight"), None, 0, 0),
        **attention_output("self_attn.o_proj", biased=False),
        **norm("ln2", "post_attention_layernorm", bias=False),
        **gate_and_in("mlp.gate_up_proj", biased=False),
        "mlp.weight_out": from_key("mlp.down_proj.weight"),
    }
    return llama.decoder(config, fields, block)


FAMILIES = [
    replace(
        llama.LLAMA,
        name="Phi-3",
        model_types=("phi3",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
    )
]
