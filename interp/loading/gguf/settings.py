"""The configuration of a GGUF file: its metadata and tensors as the fields of a ``config.json``."""

import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from interp.errors import IgnoredFieldsWarning, ModelLoadError, nearest, shorten
from interp.loading.gguf.architectures import ARCHITECTURES, FALCON_40B, Architecture
from interp.loading.gguf.header import GgufValue
from interp.loading.gguf.tensors import ROPE_TENSORS

ARCHITECTURE = "general.architecture"
TOKENS = "tokenizer.ggml"
SPECIAL_TOKENS = {
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
    "padding_token_id": "pad_token_id",
}
READ = (
    *("vocab_size", "feed_forward_length", "attention.head_count_kv", "rope.dimension_count"),
    *("attention.key_length", "attention.value_length"),
    *("rope.freq_base_swa", "attention.sliding_window_pattern"),
    *(f"rope.scaling.{name}" for name in ("type", "factor", "attn_factor", "finetuned")),
    *(f"rope.scaling.{name}" for name in ("original_context_length", "yarn_beta_fast")),
    *("rope.scaling.yarn_beta_slow", "rope.scaling.yarn_log_multiplier"),
)
"""Settings of any architecture that are read here, besides those of its table."""
ALLOWED: dict[str, tuple[object, ...]] = {
    "attention.sliding_window": (0,),
    "attention.clamp_kqv": (0.0,),
    "attention.layer_norm_epsilon": (1e-5,),
    "attention.causal": (True,),
    "attention.scale": (),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "embedding_scale": (1.0,),
    "residual_scale": (1.0,),
    "logit_scale": (1.0,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "expert_weights_scale": (0.0, 1.0),
    "leading_dense_block_count": (0,),
    "nextn_predict_layers": (0,),
    "pooling_type": (0,),
    "use_parallel_residual": (),
}
"""Settings that change what a model computes, where its architecture doesn't read them, and the
values that change nothing."""
LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}
"""The number of layers by which llama.cpp knows the models whose scores are divided by
√(d_model / n_heads) instead of √d_head; the file does not say."""


def architecture_of(metadata: Mapping[str, GgufValue], tensors: Collection[str]) -> Architecture:
    """The architecture that a file names, given its metadata and the names of its tensors.

    Raises:
        ModelLoadError: it is missing or not supported.
    """
    name = metadata.get(ARCHITECTURE)
    if name == "llama" and metadata.get("llama.expert_count", 0):
        name = "mixtral"
    if name == "olmo2" and "olmo2.attention.sliding_window" in metadata:
        name = "olmo3"
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise ModelLoadError(
            f"it has {ARCHITECTURE}={shorten(name)}, which is not supported; supported are "
            f"{', '.join(sorted(ARCHITECTURES))}.{nearest(str(name), ARCHITECTURES)}"
        )
    architecture = ARCHITECTURES[name]
    if name == "falcon" and "blk.0.attn_norm_2.weight" in tensors:
        return replace(architecture, names={**architecture.names, **FALCON_40B})
    return architecture


def config_of(
    metadata: Mapping[str, GgufValue],
    shapes: Mapping[str, tuple[int, ...]],
    architecture: Architecture,
    factors: Mapping[str, list[float]],
    *,
    strict: bool = False,
) -> dict[str, Any]:
    """The fields of a ``config.json`` that describes the model of a file.

    Args:
        metadata: the metadata of the file.
        shapes: the shape of each tensor.
        architecture: its architecture.
        factors: the values of the tensors among :data:`ROPE_TENSORS` that the file has.
        strict: whether metadata of the architecture that is not read is refused.

    Raises:
        ModelLoadError: a size is missing or not a number, or a setting is not supported.
    """
    settings = _Settings(metadata, shapes)
    settings.check(architecture, strict=strict)
    fields: dict[str, Any] = {"model_type": architecture.model_type, **architecture.fixed}
    for key, name in architecture.settings.items():
        value = settings.number(key)
        if value is not None:
            fields[name] = value
    for key, name in SPECIAL_TOKENS.items():
        value = metadata.get(f"{TOKENS}.{key}")
        if value is not None:
            fields[name] = value
    if "token_embd.weight" in shapes:
        fields["vocab_size"] = shapes["token_embd.weight"][0]
    fields["tie_word_embeddings"] = "output.weight" not in shapes
    _set_heads(fields, settings, architecture.settings.get("attention.head_count_kv"))
    _set_scaling(fields, settings, factors)
    special = SPECIAL.get(architecture.model_type)
    if special is not None:
        special(fields, settings)
    return fields


class _Settings:
    """The metadata of a file whose names begin with its architecture, and shapes of its tensors."""

    def __init__(
        self, metadata: Mapping[str, GgufValue], shapes: Mapping[str, tuple[int, ...]]
    ) -> None:
        self.architecture, self.shapes = str(metadata[ARCHITECTURE]), shapes
        prefix = f"{self.architecture}."
        self._values = {
            key.removeprefix(prefix): value
            for key, value in metadata.items()
            if key.startswith(prefix)
        }

    def check(self, architecture: Architecture, *, strict: bool) -> None:
        """Refuse what is not supported and changes the numbers; warn of what is not known.

        Raises:
            ModelLoadError: a setting has another value than those that change nothing.
        """
        unread = {
            key: value
            for key, value in self._values.items()
            if key not in architecture.settings and key not in READ
        }
        for key, value in unread.items():
            if key in ALLOWED and value not in ALLOWED[key]:
                raise self.unsupported(key, value)
        named = ", ".join(sorted(key for key in unread if key not in ALLOWED))
        if named and strict:
            raise ModelLoadError(f"its metadata of {self.architecture} has {named}, not read here.")
        if named:
            warnings.warn(
                f"{self.architecture}: metadata is ignored that is not known here: {named}. "
                "(strict=True refuses it.)",
                IgnoredFieldsWarning,
                stacklevel=6,
            )

    def get(self, key: str) -> Any:  # noqa: ANN401 - a value of the metadata
        return self._values.get(key)

    def number(self, key: str) -> Any:  # noqa: ANN401 - a number or a flag
        """A number, or one number for all layers.

        Raises:
            ModelLoadError: it is a text, or differs between layers.
        """
        value = self._values.get(key)
        if isinstance(value, list) and value and all(entry == value[0] for entry in value):
            value = value[0]
        if value is not None and not isinstance(value, bool | int | float):
            raise self.unsupported(key, value)
        return value

    def unsupported(self, key: str, value: object) -> ModelLoadError:
        """The error for a setting."""
        return ModelLoadError(f"{self.architecture}.{key}={shorten(value)} is not supported.")


def _set_heads(fields: dict[str, Any], settings: _Settings, kv_heads: str | None) -> None:
    """The size of a head, the fraction of it that is rotated, and the number of key/value heads."""
    d_model = fields.get("hidden_size", fields.get("n_embd"))
    n_heads = fields.get("num_attention_heads", fields.get("n_head", fields.get("n_heads")))
    if not isinstance(d_model, int) or not isinstance(n_heads, int) or n_heads < 1:
        raise ModelLoadError("its metadata lacks the width of the stream or the number of heads.")
    if kv_heads is not None:
        fields.setdefault(kv_heads, n_heads)
    d_head, queries = (
        settings.number("attention.key_length"),
        settings.shapes.get("blk.0.attn_q.weight"),
    )
    if d_head is None:
        rows = d_model if queries is None else queries[0]
        d_head = rows // n_heads
    if settings.number("attention.value_length") not in (None, d_head):
        raise settings.unsupported("attention.value_length", settings.get("attention.value_length"))
    if d_head * n_heads != d_model:
        fields["head_dim"] = d_head
    rotated = settings.number("rope.dimension_count")
    if rotated is not None and rotated != d_head:
        fields["partial_rotary_factor"] = rotated / d_head


def _set_scaling(
    fields: dict[str, Any], settings: _Settings, factors: Mapping[str, list[float]]
) -> None:
    """The scaling of rotary positions.

    Raises:
        ModelLoadError: its kind is not supported, or one of its tensors is missing.
    """
    kind, factor = settings.get("rope.scaling.type"), settings.number("rope.scaling.factor")
    if factors:
        fields |= _frequencies(fields, settings, factors)
    elif kind == "linear" and factor != 1:
        fields["rope_scaling"] = {"rope_type": kind, "factor": factor}
    elif kind == "yarn":
        fields["rope_scaling"] = {"rope_type": kind, "factor": factor, **_yarn(settings)}
    elif kind not in (None, "none", "linear"):
        raise settings.unsupported("rope.scaling.type", kind)


def _frequencies(
    fields: Mapping[str, Any], settings: _Settings, factors: Mapping[str, list[float]]
) -> dict[str, Any]:
    """A scaling that is stored as a divisor of each frequency, for short and for long texts.

    That of Llama 3 is the same for both.
    """
    both, short, long = (factors.get(name) for name in ROPE_TENSORS)
    if both is not None:
        same: dict[str, Any] = {"rope_type": "longrope", "factor": 1.0, "attention_factor": 1.0}
        return {"rope_scaling": {**same, "short_factor": both, "long_factor": both}}
    if short is None or long is None:
        raise ModelLoadError(f"it has {', '.join(factors)} without its counterpart.")
    scaling = {"rope_type": "longrope", "short_factor": short, "long_factor": long}
    amplitude = settings.number("rope.scaling.attn_factor")
    if amplitude is not None:
        scaling["attention_factor"] = amplitude
    original = settings.number("rope.scaling.original_context_length")
    return {
        "original_max_position_embeddings": original or fields.get("max_position_embeddings"),
        "rope_scaling": scaling,
    }


YARN = {
    "original_context_length": "original_max_position_embeddings",
    "attn_factor": "attention_factor",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}


def _yarn(settings: _Settings) -> dict[str, Any]:
    multiplier = settings.number("rope.scaling.yarn_log_multiplier")
    if multiplier:
        raise settings.unsupported("rope.scaling.yarn_log_multiplier", multiplier)
    values = {name: settings.number(f"rope.scaling.{key}") for key, name in YARN.items()}
    return {name: value for name, value in values.items() if value is not None}


def _is_biased(settings: _Settings, *tensors: str) -> bool:
    return any(f"blk.0.{tensor}.bias" in settings.shapes for tensor in tensors)


def _llama(fields: dict[str, Any], settings: _Settings) -> None:
    fields["attention_bias"] = _is_biased(settings, "attn_q", "attn_output")
    fields["mlp_bias"] = _is_biased(settings, "ffn_up", "ffn_down")


def _gpt_oss(fields: dict[str, Any], _: _Settings) -> None:
    """The bounds of YaRN are not rounded, as in the published configuration."""
    scaling = fields.get("rope_scaling")
    if isinstance(scaling, dict):
        scaling["truncate"] = False


def _seed_oss(fields: dict[str, Any], settings: _Settings) -> None:
    fields["attention_bias"] = _is_biased(settings, "attn_q")
    fields["attention_out_bias"] = _is_biased(settings, "attn_output")
    fields["mlp_bias"] = _is_biased(settings, "ffn_up")


def _glm_4(fields: dict[str, Any], settings: _Settings) -> None:
    """Half of each head is rotated unless the file says otherwise."""
    fields.setdefault("head_dim", fields["hidden_size"] // fields["num_attention_heads"])
    if settings.number("rope.dimension_count") == fields["head_dim"]:
        fields["partial_rotary_factor"] = 1.0
    fields["attention_bias"] = _is_biased(settings, "attn_q")


def _command_r(fields: dict[str, Any], settings: _Settings) -> None:
    fields["use_qk_norm"] = "blk.0.attn_q_norm.weight" in settings.shapes


def _windows(fields: dict[str, Any], settings: _Settings) -> None:
    """Which layers have a window, where the file lists them."""
    pattern = settings.get("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        kinds = {True: "sliding_attention", False: "full_attention"}
        fields["layer_types"] = [kinds[bool(slides)] for slides in pattern]
    elif pattern is not None:
        fields["sliding_window_pattern"] = pattern


def _qwen_2_moe(fields: dict[str, Any], settings: _Settings) -> None:
    fields["qkv_bias"] = _is_biased(settings, "attn_q")


def _gemma(fields: dict[str, Any], settings: _Settings) -> None:
    """Soft-caps that are 0 are none; the divisor of scores follows from the size."""
    d_model, n_heads = fields["hidden_size"], fields["num_attention_heads"]
    fields.setdefault("head_dim", d_model // n_heads)
    if fields["model_type"] == "gemma":
        return
    is_largest = fields.get("num_hidden_layers") == LAYERS_OF_27B[settings.architecture]
    fields["query_pre_attn_scalar"] = d_model // n_heads if is_largest else fields["head_dim"]
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        fields[name] = fields.get(name) or None
    local = settings.number("rope.freq_base_swa")
    if local is not None:
        fields["rope_local_base_freq"] = local
    _windows(fields, settings)


def _phi_2(fields: dict[str, Any], settings: _Settings) -> None:
    fields["qk_layernorm"] = "blk.0.attn_q_norm.weight" in settings.shapes


def _phi_3(fields: dict[str, Any], _: _Settings) -> None:
    fields["sliding_window"] = fields.get("sliding_window") or None
    fields.setdefault("original_max_position_embeddings", fields.get("max_position_embeddings"))


def _starcoder_2(fields: dict[str, Any], settings: _Settings) -> None:
    fields["use_bias"] = _is_biased(settings, "attn_output", "ffn_up")


def _stablelm(fields: dict[str, Any], settings: _Settings) -> None:
    fields["use_qkv_bias"] = _is_biased(settings, "attn_q")
    fields["qk_layernorm"] = "blk.0.attn_q_norm.weight" in settings.shapes
    fields["use_parallel_residual"] = "blk.0.ffn_norm.weight" not in settings.shapes


def _neox(fields: dict[str, Any], settings: _Settings) -> None:
    fields["rotary_pct"] = fields.pop("partial_rotary_factor", 1.0)
    fields["attention_bias"] = _is_biased(settings, "attn_qkv")


def _falcon(fields: dict[str, Any], settings: _Settings) -> None:
    two_norms = "blk.0.attn_norm_2.weight" in settings.shapes
    n_kv = fields["num_kv_heads"]
    is_new = two_norms or n_kv not in (1, fields["num_attention_heads"])
    fields["new_decoder_architecture"] = is_new
    fields["multi_query"] = n_kv == 1
    fields["bias"] = _is_biased(settings, "attn_qkv")
    if is_new:
        fields["num_ln_in_parallel_attn"] = 2 if two_norms else 1


SPECIAL = {
    **dict.fromkeys(("llama", "granite", "smollm3"), _llama),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text"), _gemma),
    **dict.fromkeys(("olmo3", "cohere2"), _windows),
    "gpt_oss": _gpt_oss,
    "seed_oss": _seed_oss,
    "glm4": _glm_4,
    "cohere": _command_r,
    "qwen2_moe": _qwen_2_moe,
    "phi": _phi_2,
    "phi3": _phi_3,
    "starcoder2": _starcoder_2,
    "stablelm": _stablelm,
    "gpt_neox": _neox,
    "falcon": _falcon,
}
"""What follows from the tensors, or is stored in another form, by the model type."""
