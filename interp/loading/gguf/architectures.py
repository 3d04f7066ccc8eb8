"""Architectures of llama.cpp: the tensors and settings of each as those of a family.

llama.cpp stores most models under its own names, and some weights in another order: the rows of
queries and keys of Llama (whose rotary pairs are neighbours there), the rows of joint queries, keys
and values, norms with 1 added. Each entry below says which, as its converters write them
(https://github.com/ggml-org/llama.cpp, folder ``conversion``).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

Change = Callable[[Tensor, Mapping[str, Any]], Tensor]
"""The weight of a family, given the tensor of the file and the fields of the configuration."""


@dataclass(frozen=True)
class Architecture:
    """How a file of one architecture is read.

    Attributes:
        model_type: the family, by the ``model_type`` of ``transformers``.
        block: prefix of the weights of a block; ``{}`` is its index.
        names: names in the family, without the prefix of blocks and without ``.weight``; ``*`` is
            the index in the first axis, along which the tensor is divided.
        settings: fields of the configuration, by the key of the metadata.
        fixed: further fields, which the architecture implies.
        changes: how the values of a tensor differ, by its name.
    """

    model_type: str
    names: Mapping[str, str]
    settings: Mapping[str, str]
    block: str = "model.layers.{}."
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    changes: Mapping[str, Change] = field(default_factory=dict[str, Change])


# ---- changes of values --------------------------------------------------------------------------


def half_rotated(n_heads: str) -> Change:
    """Rows of each head from neighbouring pairs (x0 y0 x1 y1 …) to halves (x0 x1 … y0 y1 …)."""

    def change(rows: Tensor, fields: Mapping[str, Any]) -> Tensor:
        pairs = rows.reshape(fields[n_heads], -1, 2, *rows.shape[1:])
        return pairs.transpose(1, 2).reshape(rows.shape)

    return change


def without_offset(gain: Tensor, _: Mapping[str, Any]) -> Tensor:
    """1 + w as w."""
    return gain - 1


def transposed(matrix: Tensor, _: Mapping[str, Any]) -> Tensor:
    """[out, in] as [in, out]."""
    return matrix.T if matrix.ndim > 1 else matrix


def by_head(rows: Tensor, fields: Mapping[str, Any]) -> Tensor:
    """Rows in the order [q k v][head][d_head] reordered to [head][q k v][d_head]."""
    n_heads = fields.get("n_head", fields.get("num_attention_heads"))
    return rows.reshape(3, n_heads, -1, *rows.shape[1:]).transpose(0, 1).reshape(rows.shape)


def by_group(rows: Tensor, fields: Mapping[str, Any]) -> Tensor:
    """Queries, keys and values reordered to [kv_head][q … q k v][d_head]."""
    n_kv, n_heads = fields["num_kv_heads"], fields["num_attention_heads"]
    d_head = len(rows) // (n_heads + 2 * n_kv)
    sizes = [n_heads * d_head, n_kv * d_head, n_kv * d_head]
    parts = (part.reshape(n_kv, -1, *rows.shape[1:]) for part in rows.split(sizes))
    return torch.cat([*parts], dim=1).reshape(rows.shape)


def as_row(vector: Tensor, _: Mapping[str, Any]) -> Tensor:
    """[d] as [1, d]."""
    return vector.reshape(1, -1)


# ---- names and settings that many share ---------------------------------------------------------

SIZES = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "rope.freq_base": "rope_theta",
}
GROUPED = {"attention.head_count_kv": "num_key_value_heads"}
RMS = {**SIZES, **GROUPED, "attention.layer_norm_rms_epsilon": "rms_norm_eps"}
LAYER = {**SIZES, "attention.layer_norm_epsilon": "layer_norm_eps"}
EXPERTS = {
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}
EMBEDDINGS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
ATTENTION = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}
NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
GATED = {
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
JOINT = {
    "attn_qkv": "self_attention.query_key_value",
    "attn_output": "self_attention.dense",
    "ffn_up": "mlp.dense_h_to_4h",
    "ffn_down": "mlp.dense_4h_to_h",
}
NAMES = {**EMBEDDINGS, **ATTENTION, **NORMS, **GATED}
ROUTED = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.*.gate_proj",
    "ffn_up_exps": "mlp.experts.*.up_proj",
    "ffn_down_exps": "mlp.experts.*.down_proj",
}
SANDWICH = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
HALF_ROTATED = {
    "attn_q": half_rotated("num_attention_heads"),
    "attn_k": half_rotated("num_key_value_heads"),
}
EVERY_NORM = (*NORMS, *SANDWICH, "output_norm", "attn_q_norm", "attn_k_norm")
OFFSET_NORMS: dict[str, Change] = dict.fromkeys(EVERY_NORM, without_offset)

# ---- the architectures --------------------------------------------------------------------------

LLAMA = Architecture("llama", NAMES, RMS, changes=HALF_ROTATED)
QWEN_3 = Architecture("qwen3", NAMES, RMS)
GEMMA = Architecture("gemma", NAMES, RMS, changes=OFFSET_NORMS)
GEMMA_2 = replace(
    GEMMA,
    model_type="gemma2",
    names={**NAMES, **SANDWICH},
    settings={
        **RMS,
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
        "attention.sliding_window": "sliding_window",
    },
)
OLMO_2 = Architecture("olmo2", {**NAMES, **SANDWICH}, RMS)
COMMAND_R = Architecture(
    "cohere",
    {name: part for name, part in NAMES.items() if name != "ffn_norm"},
    {**LAYER, **GROUPED, "logit_scale": "logit_scale"},
)
ARCHITECTURES: dict[str, Architecture] = {
    "llama": LLAMA,
    "mixtral": replace(
        LLAMA,
        model_type="mixtral",
        names={
            **EMBEDDINGS,
            **ATTENTION,
            **NORMS,
            "ffn_gate_inp": "mlp.gate",
            "ffn_gate_exps": "mlp.experts.*.w1",
            "ffn_up_exps": "mlp.experts.*.w3",
            "ffn_down_exps": "mlp.experts.*.w2",
        },
        settings={
            **RMS,
            "expert_count": "num_local_experts",
            "expert_used_count": "num_experts_per_tok",
        },
    ),
    "granite": replace(
        LLAMA,
        model_type="granite",
        settings={
            **RMS,
            "attention.scale": "attention_multiplier",
            "embedding_scale": "embedding_multiplier",
            "residual_scale": "residual_multiplier",
            "logit_scale": "logits_scaling",
        },
    ),
    "smollm3": replace(LLAMA, model_type="smollm3"),
    "olmo": Architecture(
        "olmo",
        {name: part for name, part in NAMES.items() if name not in (*NORMS, "output_norm")},
        {**SIZES, **GROUPED, "attention.clamp_kqv": "clip_qkv"},
        changes=HALF_ROTATED,
    ),
    "qwen2": replace(QWEN_3, model_type="qwen2"),
    "qwen3": QWEN_3,
    "qwen2moe": Architecture(
        "qwen2_moe",
        {
            **NAMES,
            **ROUTED,
            "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
            "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
            "ffn_up_shexp": "mlp.shared_expert.up_proj",
            "ffn_down_shexp": "mlp.shared_expert.down_proj",
        },
        {
            **RMS,
            **EXPERTS,
            "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
        },
        changes={"ffn_gate_inp_shexp": as_row},
    ),
    "qwen3moe": Architecture(
        "qwen3_moe", {**NAMES, **ROUTED}, {**RMS, **EXPERTS}, fixed={"norm_topk_prob": True}
    ),
    "olmoe": Architecture(
        "olmoe",
        {**NAMES, **ROUTED},
        {**RMS, "expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"},
    ),
    "seed_oss": replace(
        QWEN_3,
        model_type="seed_oss",
        names={**NAMES, "post_attention_norm": "post_attention_layernorm"},
    ),
    "gpt-oss": Architecture(
        "gpt_oss",
        {
            **EMBEDDINGS,
            **ATTENTION,
            "attn_sinks": "self_attn.sinks",
            "attn_norm": "input_layernorm",
            "post_attention_norm": "post_attention_layernorm",
            "ffn_gate_inp": "mlp.router",
            "ffn_gate_exps": "mlp.experts.gate_proj",
            "ffn_up_exps": "mlp.experts.up_proj",
            "ffn_down_exps": "mlp.experts.down_proj",
        },
        {
            **RMS,
            "expert_count": "num_local_experts",
            "expert_used_count": "num_experts_per_tok",
            "expert_feed_forward_length": "intermediate_size",
            "attention.sliding_window": "sliding_window",
        },
    ),
    "glm4": Architecture(
        "glm4",
        {
            **NAMES,
            "ffn_up": "mlp.gate_up_proj",
            "post_attention_norm": "post_self_attn_layernorm",
            "post_ffw_norm": "post_mlp_layernorm",
        },
        RMS,
    ),
    "command-r": COMMAND_R,
    "cohere2": replace(
        COMMAND_R,
        model_type="cohere2",
        settings={**COMMAND_R.settings, "attention.sliding_window": "sliding_window"},
    ),
    "gemma": GEMMA,
    "gemma2": GEMMA_2,
    "gemma3": replace(GEMMA_2, model_type="gemma3_text"),
    "olmo2": OLMO_2,
    "olmo3": replace(
        OLMO_2, model_type="olmo3", settings={**RMS, "attention.sliding_window": "sliding_window"}
    ),
    "phi2": Architecture(
        "phi",
        {
            **ATTENTION,
            "token_embd": "model.embed_tokens",
            "output_norm": "model.final_layernorm",
            "output": "lm_head",
            "attn_norm": "input_layernorm",
            "attn_output": "self_attn.dense",
            "ffn_up": "mlp.fc1",
            "ffn_down": "mlp.fc2",
        },
        {**LAYER, **GROUPED},
    ),
    "phi3": Architecture(
        "phi3",
        {
            **EMBEDDINGS,
            **NORMS,
            "attn_qkv": "self_attn.qkv_proj",
            "attn_output": "self_attn.o_proj",
            "ffn_up": "mlp.gate_up_proj",
            "ffn_down": "mlp.down_proj",
        },
        {**RMS, "attention.sliding_window": "sliding_window"},
    ),
    "starcoder2": Architecture(
        "starcoder2",
        {**EMBEDDINGS, **ATTENTION, **NORMS, "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
        {**SIZES, **GROUPED, "attention.layer_norm_epsilon": "norm_epsilon"},
    ),
    "stablelm": Architecture(
        "stablelm",
        {
            **NAMES,
            "attn_q_norm": "self_attn.q_layernorm.norms.*",
            "attn_k_norm": "self_attn.k_layernorm.norms.*",
        },
        {**LAYER, **GROUPED, "use_parallel_residual": "use_parallel_residual"},
    ),
    "gptneox": Architecture(
        "gpt_neox",
        {
            "token_embd": "gpt_neox.embed_in",
            "output_norm": "gpt_neox.final_layer_norm",
            "output": "embed_out",
            **NORMS,
            **JOINT,
            "attn_qkv": "attention.query_key_value",
            "attn_output": "attention.dense",
        },
        {
            **LAYER,
            "rope.freq_base": "rotary_emb_base",
            "use_parallel_residual": "use_parallel_residual",
        },
        block="gpt_neox.layers.{}.",
        changes={"attn_qkv": by_head},
    ),
    "bloom": Architecture(
        "bloom",
        {
            "token_embd": "transformer.word_embeddings",
            "token_embd_norm": "transformer.word_embeddings_layernorm",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
            **NORMS,
            **JOINT,
        },
        {
            "context_length": "seq_length",
            "embedding_length": "hidden_size",
            "block_count": "n_layer",
            "attention.head_count": "n_head",
            "attention.layer_norm_epsilon": "layer_norm_epsilon",
        },
        block="transformer.h.{}.",
        changes={"attn_qkv": by_head},
    ),
    "falcon": Architecture(
        "falcon",
        {
            "token_embd": "transformer.word_embeddings",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
            "attn_norm": "input_layernorm",
            **JOINT,
        },
        {
            **SIZES,
            "feed_forward_length": "ffn_hidden_size",
            "attention.head_count_kv": "num_kv_heads",
            "attention.layer_norm_epsilon": "layer_norm_epsilon",
        },
        block="transformer.h.{}.",
        changes={"attn_qkv": by_group},
    ),
    "gpt2": Architecture(
        "gpt2",
        {
            "token_embd": "transformer.wte",
            "position_embd": "transformer.wpe",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
            "attn_norm": "ln_1",
            "attn_qkv": "attn.c_attn",
            "attn_output": "attn.c_proj",
            "ffn_norm": "ln_2",
            "ffn_up": "mlp.c_fc",
            "ffn_down": "mlp.c_proj",
        },
        {
            "context_length": "n_positions",
            "embedding_length": "n_embd",
            "block_count": "n_layer",
            "attention.head_count": "n_head",
            "feed_forward_length": "n_inner",
            "attention.layer_norm_epsilon": "layer_norm_epsilon",
        },
        block="transformer.h.{}.",
        changes=dict.fromkeys(("attn_qkv", "attn_output", "ffn_up", "ffn_down"), transposed),
    ),
}
"""The architectures, by ``general.architecture``; ``mixtral`` is ``llama`` with experts, and
``olmo3`` is ``olmo2`` with windows."""
FALCON_40B = {"attn_norm": "ln_mlp", "attn_norm_2": "ln_attn"}
"""Names of the norms of Falcon where attention and MLP have one each."""
