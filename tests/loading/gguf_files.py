"""GGUF files of small models of ``transformers``, converted as llama.cpp's ``conversion`` does."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from torch import Tensor, nn

SIZES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
GPT_2 = {
    "vocab_size": 96,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 32,
    "n_inner": 96,
}
BLOOM = {"vocab_size": 96, "hidden_size": 64, "n_layer": 2, "n_head": 4}
FALCON = {name: size for name, size in SIZES.items() if name != "intermediate_size"}
FALCON |= {"ffn_hidden_size": 256}
ROUTED = {
    **GROUPED,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}
Change = Callable[[str, Tensor, Any], dict[str, Tensor]]
Setting = Callable[[Any], object]


@dataclass(frozen=True)
class Converted:
    """A model and how it is converted.

    Attributes:
        model: the class of ``transformers``.
        fields: the fields of its configuration.
        settings: the metadata of its architecture, from the configuration.
        change: the tensors of a weight, by its name in ``transformers``.
    """

    model: str
    fields: dict[str, Any]
    settings: dict[str, Setting] = field(default_factory=dict[str, Setting])
    change: Change = lambda name, weight, _: {name: weight}

    def build(self, **fields: Any) -> nn.Module:
        """The model with random weights, norms and biases included."""
        kind = getattr(transformers, self.model)
        torch.manual_seed(0)
        model = kind(kind.config_class(**{**self.fields, **fields})).eval()
        for weight in model.parameters():
            # Where a file holds 1 + w, w has lost the digits that 1 + w has no room for.
            weight.data = (weight + 0.1 * torch.randn_like(weight) + 1) - 1
        return model


# ---- conversion of values, from conversion/{llama,gemma,gpt_neox,falcon,gpt2}.py ----------------


def permute(rows: Tensor, n_heads: int) -> Tensor:
    shape = (n_heads, 2, rows.shape[0] // n_heads // 2, *rows.shape[1:])
    return rows.reshape(shape).swapaxes(1, 2).reshape(rows.shape)


def llama(name: str, weight: Tensor, config: Any) -> dict[str, Tensor]:
    if name.endswith(("q_proj.weight", "q_proj.bias")):
        weight = permute(weight, config.num_attention_heads)
    if name.endswith(("k_proj.weight", "k_proj.bias")):
        weight = permute(weight, config.num_key_value_heads)
    return experts(name, weight, config)


def experts(name: str, weight: Tensor, config: Any) -> dict[str, Tensor]:
    before, separator, _ = name.partition("mlp.experts.")
    if not separator:
        return {name: weight}
    block = before.split(".")[2]
    if name.endswith("down_proj"):
        return {f"blk.{block}.ffn_down_exps.weight": weight}
    gate, up = weight.chunk(2, dim=1)
    return {f"blk.{block}.ffn_gate_exps.weight": gate, f"blk.{block}.ffn_up_exps.weight": up}


def shared(name: str, weight: Tensor, config: Any) -> dict[str, Tensor]:
    weight = weight.squeeze(0) if name.endswith("shared_expert_gate.weight") else weight
    return experts(name, weight, config)


def gpt_oss(name: str, weight: Tensor, config: Any) -> dict[str, Tensor]:
    """Gate and up, which are interleaved in the last axis, as two tensors [expert, out, in]."""
    if name.endswith("sinks"):
        return {f"{name}.weight": weight}
    before, separator, part = name.partition("mlp.experts.")
    if not separator:
        return {name: weight}
    kind = "bias" if part.endswith("_bias") else "weight"
    weight = weight if kind == "bias" else weight.mT
    if part.startswith("down"):
        return {f"{before}mlp.experts.down_proj.{kind}": weight}
    axis = -1 if kind == "bias" else -2
    return {
        f"{before}mlp.experts.{side}_proj.{kind}": weight.unflatten(axis, (-1, 2)).select(axis, n)
        for n, side in enumerate(("gate", "up"))
    }


def gemma(name: str, weight: Tensor, config: Any) -> dict[str, Tensor]:
    return {name: weight + 1 if name.endswith("norm.weight") else weight}


def by_part(name: str, weight: Tensor, config: Any) -> dict[str, Tensor]:
    name = name.removeprefix("transformer.")
    if "query_key_value" not in name:
        return {name: weight}
    n_heads = getattr(config, "num_attention_heads", None) or config.n_head
    parts = weight.reshape(n_heads, 3, -1, *weight.shape[1:])
    return {name: torch.cat([parts[:, n].flatten(0, 1) for n in range(3)])}


def grouped(name: str, weight: Tensor, config: Any) -> dict[str, Tensor]:
    if "query_key_value" not in name:
        return {name: weight}
    n_kv = config.num_kv_heads if config.new_decoder_architecture else 1
    d_head = config.hidden_size // config.num_attention_heads
    qkv = weight.reshape(n_kv, -1, d_head, *weight.shape[1:])
    parts = (qkv[:, :-2], qkv[:, [-2]], qkv[:, [-1]])
    return {name: torch.cat([part.reshape(-1, *weight.shape[1:]) for part in parts])}


def transposed(name: str, weight: Tensor, config: Any) -> dict[str, Tensor]:
    is_conv = name.endswith(("c_attn.weight", "c_fc.weight", "c_proj.weight"))
    return {name: weight.T if is_conv else weight}


# ---- metadata -----------------------------------------------------------------------------------


def of(name: str) -> Setting:
    return lambda config: getattr(config, name)


def d_head(config: Any) -> int:
    width = getattr(config, "head_dim", None)
    return width or config.hidden_size // config.num_attention_heads


def base(config: Any) -> float:
    rope = config.rope_parameters
    return rope.get("full_attention", rope)["rope_theta"]


def rotated(config: Any) -> int:
    return int(d_head(config) * config.rope_parameters.get("partial_rotary_factor", 1.0))


SHAPE = {
    "context_length": of("max_position_embeddings"),
    "embedding_length": of("hidden_size"),
    "block_count": of("num_hidden_layers"),
    "feed_forward_length": of("intermediate_size"),
    "attention.head_count": of("num_attention_heads"),
    "attention.head_count_kv": lambda config: getattr(config, "num_key_value_heads", None),
    "rope.freq_base": base,
}
RMS = {**SHAPE, "attention.layer_norm_rms_epsilon": of("rms_norm_eps")}
LLAMA = {**RMS, "vocab_size": of("vocab_size"), "rope.dimension_count": d_head}
WIDE = {**RMS, "attention.key_length": d_head, "attention.value_length": d_head}
MIXTURE = {
    "expert_count": lambda config: getattr(config, "num_experts", None) or config.num_local_experts,
    "expert_used_count": of("num_experts_per_tok"),
}
WINDOW = {"attention.sliding_window": of("sliding_window")}
CAPS = {
    "attn_logit_softcapping": of("attn_logit_softcapping"),
    "final_logit_softcapping": of("final_logit_softcapping"),
}
PARTIAL = {
    **SHAPE,
    "attention.layer_norm_epsilon": of("layer_norm_eps"),
    "rope.dimension_count": rotated,
}


def windows(config: Any) -> list[bool]:
    """Which layers have a window."""
    return [kind == "sliding_attention" for kind in config.layer_types]


CONVERTED = {
    "llama": Converted("LlamaForCausalLM", GROUPED, LLAMA, llama),
    "llama/mixtral": Converted(
        "MixtralForCausalLM",
        {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2},
        {**LLAMA, **MIXTURE},
        llama,
    ),
    "granite": Converted(
        "GraniteForCausalLM",
        {**GROUPED, "embedding_multiplier": 3.0, "attention_multiplier": 0.2}
        | {"residual_multiplier": 0.5, "logits_scaling": 2.0},
        {
            **LLAMA,
            "attention.scale": of("attention_multiplier"),
            "embedding_scale": of("embedding_multiplier"),
            "residual_scale": of("residual_multiplier"),
            "logit_scale": of("logits_scaling"),
        },
        llama,
    ),
    "smollm3": Converted(
        "SmolLM3ForCausalLM",
        {**GROUPED, "num_hidden_layers": 4, "pad_token_id": None, "bos_token_id": 1}
        | {"eos_token_id": 2},
        LLAMA,
        llama,
    ),
    "qwen2": Converted("Qwen2ForCausalLM", GROUPED, RMS),
    "qwen3": Converted("Qwen3ForCausalLM", {**GROUPED, "head_dim": 32}, WIDE),
    "qwen2moe": Converted(
        "Qwen2MoeForCausalLM",
        {**ROUTED, "shared_expert_intermediate_size": 64},
        {
            **RMS,
            **MIXTURE,
            "expert_feed_forward_length": of("moe_intermediate_size"),
            "expert_shared_feed_forward_length": of("shared_expert_intermediate_size"),
        },
        shared,
    ),
    "qwen3moe": Converted(
        "Qwen3MoeForCausalLM",
        {**ROUTED, "head_dim": 32, "norm_topk_prob": True},
        {**WIDE, **MIXTURE, "expert_feed_forward_length": of("moe_intermediate_size")},
        experts,
    ),
    "gemma": Converted("GemmaForCausalLM", {**GROUPED, "head_dim": 32}, WIDE, gemma),
    "gemma2": Converted(
        "Gemma2ForCausalLM",
        {**GROUPED, "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 8},
        {**WIDE, **CAPS, **WINDOW},
        gemma,
    ),
    "gemma3": Converted(
        "Gemma3ForCausalLM",
        {**GROUPED, "num_hidden_layers": 7, "head_dim": 32, "query_pre_attn_scalar": 32}
        | {"sliding_window": 8},
        {**WIDE, **WINDOW},
        gemma,
    ),
    "olmo": Converted(
        "OlmoForCausalLM",
        {**GROUPED, "clip_qkv": 0.5},
        {
            **SHAPE,
            "attention.layer_norm_epsilon": lambda _: 1e-5,
            "attention.clamp_kqv": of("clip_qkv"),
        },
        llama,
    ),
    "olmo2": Converted("Olmo2ForCausalLM", GROUPED, RMS),
    "olmo2/windows": Converted(
        "Olmo3ForCausalLM",
        {**GROUPED, "num_hidden_layers": 5, "sliding_window": 8, "pad_token_id": 1},
        {**RMS, **WINDOW, "attention.sliding_window_pattern": windows},
    ),
    "olmoe": Converted(
        "OlmoeForCausalLM",
        {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": False},
        {**RMS, **MIXTURE},
        experts,
    ),
    "seed_oss": Converted("SeedOssForCausalLM", {**GROUPED, "head_dim": 32}, WIDE),
    "gpt-oss": Converted(
        "GptOssForCausalLM",
        {**GROUPED, "num_hidden_layers": 4, "head_dim": 32, "sliding_window": 8}
        | {"num_local_experts": 4, "num_experts_per_tok": 2},
        {
            **{**WIDE, **MIXTURE, **WINDOW},
            "expert_feed_forward_length": of("intermediate_size"),
            "rope.scaling.type": lambda _: "yarn",
            "rope.scaling.factor": lambda config: config.rope_parameters["factor"],
            "rope.scaling.original_context_length": lambda config: config.rope_parameters[
                "original_max_position_embeddings"
            ],
        },
        gpt_oss,
    ),
    "glm4": Converted(
        "Glm4ForCausalLM",
        {**GROUPED, "head_dim": 32, "attention_bias": True, "pad_token_id": 0},
        {**WIDE, "rope.dimension_count": rotated},
    ),
    "command-r": Converted(
        "CohereForCausalLM",
        {**GROUPED, "use_qk_norm": False, "logit_scale": 0.25, "bos_token_id": 1}
        | {"eos_token_id": 2},
        {
            **SHAPE,
            "attention.layer_norm_epsilon": of("layer_norm_eps"),
            "logit_scale": of("logit_scale"),
            "rope.scaling.type": lambda _: "none",
        },
    ),
    "cohere2": Converted(
        "Cohere2ForCausalLM",
        {**GROUPED, "num_hidden_layers": 5, "sliding_window": 8, "bos_token_id": 1}
        | {"eos_token_id": 2},
        {
            **SHAPE,
            **WINDOW,
            "attention.layer_norm_epsilon": of("layer_norm_eps"),
            "logit_scale": of("logit_scale"),
            "rope.dimension_count": d_head,
        },
    ),
    "phi2": Converted("PhiForCausalLM", SIZES, PARTIAL),
    "phi3": Converted(
        "Phi3ForCausalLM",
        {**GROUPED, "pad_token_id": 0, "original_max_position_embeddings": 32},
        {
            **RMS,
            "rope.dimension_count": rotated,
            "rope.scaling.original_context_length": of("original_max_position_embeddings"),
            "attention.sliding_window": lambda config: config.sliding_window or 0,
        },
    ),
    "starcoder2": Converted(
        "Starcoder2ForCausalLM",
        GROUPED,
        {**SHAPE, "attention.layer_norm_epsilon": of("norm_epsilon")},
    ),
    "stablelm": Converted(
        "StableLmForCausalLM",
        {**GROUPED, "use_qkv_bias": True},
        {**PARTIAL, "use_parallel_residual": of("use_parallel_residual")},
    ),
    "gptneox": Converted(
        "GPTNeoXForCausalLM",
        SIZES,
        {**PARTIAL, "use_parallel_residual": of("use_parallel_residual")},
        by_part,
    ),
    "bloom": Converted(
        "BloomForCausalLM",
        BLOOM,
        {
            "context_length": lambda _: 2048,
            "embedding_length": of("hidden_size"),
            "feed_forward_length": lambda config: 4 * config.hidden_size,
            "block_count": of("n_layer"),
            "attention.head_count": of("n_head"),
            "attention.layer_norm_epsilon": of("layer_norm_epsilon"),
        },
        by_part,
    ),
    "falcon": Converted(
        "FalconForCausalLM",
        FALCON,
        {
            "context_length": of("max_position_embeddings"),
            "embedding_length": of("hidden_size"),
            "feed_forward_length": of("ffn_hidden_size"),
            "block_count": of("num_hidden_layers"),
            "attention.head_count": of("num_attention_heads"),
            "attention.head_count_kv": lambda c: (
                c.num_kv_heads if c.new_decoder_architecture else 1
            ),
            "attention.layer_norm_epsilon": of("layer_norm_epsilon"),
        },
        grouped,
    ),
    "falcon/grouped": Converted(
        "FalconForCausalLM",
        {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2},
    ),
    "gpt2": Converted(
        "GPT2LMHeadModel",
        GPT_2,
        {
            "context_length": of("n_positions"),
            "embedding_length": of("n_embd"),
            "feed_forward_length": of("n_inner"),
            "block_count": of("n_layer"),
            "attention.head_count": of("n_head"),
            "attention.layer_norm_epsilon": of("layer_norm_epsilon"),
        },
        transposed,
    ),
}
"""By architecture, and after a slash the kind, where there are several."""
GROUPED_FALCON = CONVERTED["falcon/grouped"]
CONVERTED["falcon/grouped"] = Converted(
    GROUPED_FALCON.model, GROUPED_FALCON.fields, CONVERTED["falcon"].settings, grouped
)


def write_gguf(
    path: Path,
    case: str,
    model: nn.Module,
    *,
    quantisation: str = "F32",
    metadata: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray] | None = None,
) -> Path:
    """Write the file of a model; matrices are quantised, vectors are float32.

    Args:
        path: the file.
        case: a name of :data:`CONVERTED`.
        model: the model.
        quantisation: the type of matrices whose rows are whole blocks.
        metadata: further entries, by their full names.
        tensors: further tensors.
    """
    conversion, (architecture, _, _) = CONVERTED[case], case.partition("/")
    config: Any = model.config
    writer = gguf.GGUFWriter(path, architecture)
    entries = {f"{architecture}.{key}": get(config) for key, get in conversion.settings.items()}
    for key, value in {**entries, **(metadata or {})}.items():
        add_entry(writer, key, value)
    kind = gguf.GGMLQuantizationType[quantisation]
    for name, array in {**named(case, model), **(tensors or {})}.items():
        fits = array.ndim > 1 and array.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] == 0
        of_tensor = kind if fits else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quants.quantize(array, of_tensor), raw_dtype=of_tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_entry(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
    add |= {str: writer.add_string, list: writer.add_array}
    if value is not None:
        add[type(value)](key, value)


def named(case: str, model: nn.Module) -> dict[str, np.ndarray]:
    """The tensors of a file, under the names that the package ``gguf`` gives them."""
    conversion, (architecture, _, _) = CONVERTED[case], case.partition("/")
    arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, 8)
    config: Any = model.config
    tensors: dict[str, np.ndarray] = {}
    tied = config.tie_word_embeddings
    for name, weight in model.state_dict().items():
        if tied and name.startswith(("lm_head", "embed_out")):
            continue
        for part, value in conversion.change(name, weight, config).items():
            suffixes = (".weight", ".bias")
            stored = part if part.startswith("blk.") else names.get_name(part, suffixes)
            if stored is None:
                raise KeyError(part)
            suffix = "" if part.startswith("blk.") else f".{part.rpartition('.')[2]}"
            tensors[f"{stored.removesuffix(suffix)}{suffix}"] = value.float().numpy()
    return tensors
