"""GPT-OSS (OpenAI 2025, arXiv:2508.10925): Llama's block with sinks and a mixture of experts.

Each head has a sink in its softmax; every second layer has a window; rotary positions are scaled
(YaRN). Router and experts have biases, and the gated activation is clamped:
post = min(gate, c)·σ(1.702 gate) * (1 + pre). Files published with weights in MXFP4 are refused.
"""

from dataclasses import replace
from typing import Any

from interp.config import Config, ExpertsConfig, MLPConfig
from interp.errors import ModelLoadError
from interp.loading.families import llama
from interp.loading.foreign_config import ForeignConfig
from interp.loading.known_fields import DEQUANTISE
from interp.loading.sliding_window import layer_types, sliding_layers
from interp.loading.weight import Table, from_key, linear

DEFAULTS: dict[str, Any] = {
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "attention_bias": True,
    "sliding_window": 128,
    "swiglu_alpha": 1.702,
    "swiglu_limit": 7.0,
    "rope_theta": 150_000.0,
    "rope_parameters": {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
}
EXPERTS = "mlp.experts"


def config(fields: ForeignConfig) -> Config:
    """Experts in every layer; by default, even layers have a window."""
    if any(name.endswith(f"{EXPERTS}.gate_up_proj_blocks") for name in fields.weight_names):
        raise ModelLoadError(f"{fields.family}: its experts are quantised (MXFP4). {DEQUANTISE}")
    biased = fields.flag("attention_bias")
    attention = llama.grouped_attention(fields, biased=biased, sinks=True)
    types = layer_types(fields, lambda layer: layer % 2 == 0)
    return llama.of_parts(
        fields, attention, mixture(fields), exceptions=sliding_layers(fields, types, attention)
    )


def mixture(fields: ForeignConfig) -> MLPConfig:
    """Gated MLPs with biases and a clamped activation."""
    fields.allow_only("swiglu_alpha", (1.702,))
    n_experts, n_chosen = (fields.integer(f"num_{n}") for n in ("local_experts", "experts_per_tok"))
    return MLPConfig(
        fields.integer("intermediate_size"),
        "quick_gelu",
        gated=True,
        experts=ExpertsConfig(n_experts, n_chosen, bias_router=True),
        clamp=fields.number("swiglu_limit"),
    )


def weights(config: Config, fields: ForeignConfig) -> Table:
    """The same block in every layer."""
    is_joint = any(name.endswith(f"{EXPERTS}.gate_up_proj") for name in fields.weight_names)
    block = {
        **llama.attention_and_norms(config.stacks["decoder"]),
        "attn.softmax.sinks": from_key("self_attn.sinks"),
        **linear("mlp.weight_router", "mlp.b_router", "mlp.router"),
        **(joint_experts() if is_joint else separate_experts()),
    }
    return llama.decoder(config, fields, block)


def joint_experts() -> Table:
    """W_gate and W_in are interleaved, and stored as ``[expert, in, out]``."""
    joint, bias = f"{EXPERTS}.gate_up_proj", f"{EXPERTS}.gate_up_proj_bias"
    return {
        "mlp.weight_gate": from_key(joint).map(lambda x: x[..., ::2].mT.contiguous()),
        "mlp.weight_in": from_key(joint).map(lambda x: x[..., 1::2].mT.contiguous()),
        "mlp.weight_out": from_key(f"{EXPERTS}.down_proj").map(lambda x: x.mT.contiguous()),
        "mlp.b_gate": from_key(bias).map(lambda x: x[..., ::2].contiguous()),
        "mlp.b_in": from_key(bias).map(lambda x: x[..., 1::2].contiguous()),
        "mlp.b_out": from_key(f"{EXPERTS}.down_proj_bias"),
    }


def separate_experts() -> Table:
    """As in GGUF files: a tensor each, ``[expert, out, in]``."""
    parts = {"gate": "gate_proj", "in": "up_proj", "out": "down_proj"}
    return {
        f"mlp.{kind}_{part}": from_key(f"{EXPERTS}.{name}.{suffix}")
        for part, name in parts.items()
        for kind, suffix in (("weight", "weight"), ("b", "bias"))
    }


FAMILIES = [
    replace(
        llama.LLAMA,
        name="GPT-OSS",
        model_types=("gpt_oss",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        fields=(*llama.LLAMA.fields, "layer_types"),
        unread=("experts_per_token", "hidden_act", "initial_context_length"),
        aliases={"num_experts": "num_local_experts"},
    )
]
