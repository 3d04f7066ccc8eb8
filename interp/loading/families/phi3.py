"""Phi-3 and Phi-4 (Abdin et al. 2024, arXiv:2404.14219, 2412.08905): Llama's shape, fused matrices.

Queries, keys and values are one matrix, in this order; gate and in are another. Positions may be
stretched by longrope, which ``su`` and ``yarn`` mean here too, and may turn a part of each head.
"""

from collections.abc import Mapping
from typing import Any

from interp.config import Config
from interp.loading.families import llama
from interp.loading.family import Family
from interp.loading.foreign_config import Raw
from interp.loading.rotary import rotary
from interp.loading.sliding_window import window
from interp.loading.weight import Table, at, fused_qkv, norm

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
KINDS = {"default": "default", "longrope": "longrope", "su": "longrope", "yarn": "longrope"}


def config(raw: Raw) -> Config:
    """Perhaps a window, the same in all layers."""
    raw.only("layer_types")
    raw = with_longrope(raw)
    attention = llama.attention(raw, window=window(raw))
    return llama.of_parts(raw, attention, llama.gated_mlp(raw), positions=rotary(raw))


def with_longrope(raw: Raw) -> Raw:
    """The same, its stretching by the name that it has elsewhere.

    Raises:
        ModelLoadError: another way of stretching.
    """
    said = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if not isinstance(said, Mapping):
        raise raw.refused("rope_parameters", said, "an object")
    name = said.get("rope_type", said.get("type", "default"))
    kind = raw.having(rope_type=name).one_of("rope_type", KINDS)
    return raw.having(rope_parameters={**said, "rope_type": kind}, rope_scaling=None)


def weights(config: Config, raw: Raw) -> Table:
    """The fused matrices cut."""
    d_mlp = raw.whole("intermediate_size")
    both = at("mlp.gate_up_proj.weight")
    block = {
        **norm("ln1", "input_layernorm", bias=False),
        **fused_qkv(at("self_attn.qkv_proj.weight"), None, 0, 0),
        "attn.weight_o": at("self_attn.o_proj.weight"),
        **norm("ln2", "post_attention_layernorm", bias=False),
        "mlp.weight_gate": both[:d_mlp],
        "mlp.weight_in": both[d_mlp:],
        "mlp.weight_out": at("mlp.down_proj.weight"),
    }
    return llama.decoder(config, raw, block)


FAMILIES = [
    Family(
        name="Phi-3",
        model_types=("phi3",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        names=(llama.PREFIX,),
        ignored=llama.IGNORED,
        embedding="embed_tokens.weight",
        ties=False,
    ),
]
