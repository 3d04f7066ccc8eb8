"""The configuration of TransformerLens 3: a mutable dataclass with its fields and defaults.

:mod:`interp.compat.core_config` says which of them the model of this package supports.
"""

import math
import pprint
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from interp.compat.errors import InvalidConfig, InvalidFields, NoConfig
from interp.errors import shorten

NOT_SET = -1.0
"""The value of numbers that are derived, and of soft-caps that are off."""


@dataclass(repr=False)
class HookedTransformerConfig:
    """The architecture and the settings of a :class:`HookedTransformer`.

    Names, defaults and meaning are those of TransformerLens 3.9.
    """

    d_model: int
    d_head: int
    n_layers: int
    n_ctx: int
    n_heads: int = -1
    d_mlp: int | None = None
    d_vocab: int = -1
    device: str | torch.device | None = None
    use_attn_result: bool = False
    use_split_qkv_input: bool = False
    default_prepend_bos: bool = True
    positional_embedding_type: str = "standard"
    n_key_value_heads: int | None = None
    attn_only: bool = False
    gated_mlp: bool = False
    uses_rms_norm: bool = False
    eps: float = 1e-5
    layer_norm_folding: bool = False
    act_fn: str = "relu"
    normalization_type: str | None = "LN"
    num_experts: int | None = None
    experts_per_token: int | None = None
    final_rms: bool = False
    dtype: torch.dtype = torch.float32
    model_name: str = "custom"
    use_attn_scale: bool = True
    attn_scale: float = NOT_SET
    use_hook_mlp_in: bool = False
    use_attn_in: bool = False
    use_qk_norm: bool = False
    clip_qkv: float | None = None
    use_logn_attn: bool = False
    train_seq_length: int | None = None
    use_dynamic_ntk_rope: bool = False
    use_local_attn: bool = False
    ungroup_grouped_query_attention: bool = False
    original_architecture: str | None = None
    from_checkpoint: bool = False
    checkpoint_index: int | None = None
    checkpoint_label_type: str | None = None
    checkpoint_value: int | None = None
    tokenizer_name: str | None = None
    window_size: int | None = None
    attn_types: list[str] | None = None
    init_mode: str = "gpt2"
    n_devices: int = 1
    attention_dir: str = "causal"
    seed: int | None = None
    initializer_range: float = NOT_SET
    init_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    d_vocab_out: int = -1
    parallel_attn_mlp: bool = False
    rotary_dim: int | None = None
    n_params: int | None = None
    use_hook_tokens: bool = False
    tokenizer_prepends_bos: bool | None = None
    post_embedding_ln: bool = False
    rotary_base: float | int = 10000
    rotary_base_local: float | int | None = None
    rotary_scaling_factor: float = 1.0
    trust_remote_code: bool = False
    rotary_adjacent_pairs: bool = False
    load_in_4bit: bool = False
    quantization_method: str | None = None
    relative_attention_max_distance: int | None = None
    relative_attention_num_buckets: int | None = None
    decoder_start_token_id: int | None = None
    tie_word_embeddings: bool = False
    use_normalization_before_and_after: bool = False
    attn_scores_soft_cap: float = NOT_SET
    output_logits_soft_cap: float = NOT_SET
    use_NTK_by_parts_rope: bool = False  # noqa: N815 - TransformerLens's name
    NTK_by_parts_low_freq_factor: float = 1.0
    NTK_by_parts_high_freq_factor: float = 4.0
    NTK_by_parts_factor: float = 8.0
    NTK_original_ctx_len: int = 8192
    use_yarn_rope: bool = False
    yarn_factor: float = 1.0
    yarn_attention_factor: float = 1.0
    yarn_beta_fast: float = 32.0
    yarn_beta_slow: float = 1.0
    yarn_original_max_position_embeddings: int = 4096
    yarn_truncate: bool = True
    yarn_global_attn_only: bool = False
    use_attention_sinks: bool = False
    norm_topk_prob: bool = False

    def __post_init__(self) -> None:
        self._derive_sizes()
        if self.seed is not None:
            self.set_seed_everywhere(self.seed)
        self._check_pairs()
        if self.initializer_range < 0:
            gpt2 = self.init_mode == "gpt2"
            self.initializer_range = 0.8 / math.sqrt(self.d_model) if gpt2 else 1.0
        if self.positional_embedding_type == "rotary" and self.rotary_dim is None:
            self.rotary_dim = self.d_head
        if self.use_attn_scale and self.attn_scale == NOT_SET:
            self.attn_scale = math.sqrt(self.d_head)
        if self.device is None:
            self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.n_params = self.count_parameters()

    def _check_pairs(self) -> None:
        """Check fields that need one another."""
        if self.use_local_attn and (self.window_size is None or self.attn_types is None):
            raise InvalidConfig("use_local_attn=True needs window_size= and attn_types=.")
        if self.use_local_attn and set(self.attn_types or ()) - {"local", "global"}:
            raise InvalidConfig(f"attn_types={self.attn_types} must be local or global.")
        if (self.num_experts is None) != (self.experts_per_token is None):
            raise InvalidConfig("Set both num_experts= and experts_per_token=, or neither.")

    def _derive_sizes(self) -> None:
        if self.n_heads == -1:
            if self.d_model % self.d_head:
                raise InvalidConfig(
                    f"d_model={self.d_model} must be a multiple of d_head={self.d_head}; otherwise "
                    "set n_heads=."
                )
            self.n_heads = self.d_model // self.d_head
        if self.d_mlp is None:
            self.d_mlp = 4 * self.d_model
        if self.d_vocab_out == -1:
            self.d_vocab_out = self.d_vocab

    def count_parameters(self) -> int:
        """The number of weights of the blocks, without biases and norms."""
        attention = 4 * self.d_model * self.d_head * self.n_heads
        if self.attn_only or self.d_mlp is None:
            return self.n_layers * attention
        mlp = self.d_model * self.d_mlp * (2 + self.gated_mlp)
        if self.num_experts:
            mlp = (mlp + self.d_model) * self.num_experts
        return self.n_layers * (attention + mlp)

    @classmethod
    def unwrap(cls, config: object) -> "HookedTransformerConfig":
        """A configuration, given as one or as a dictionary.

        Raises:
            InvalidConfig: it is something else.
        """
        if isinstance(config, cls):
            return config
        values = config if isinstance(config, Mapping) else getattr(config, "to_dict", dict)()
        if not values:
            raise NoConfig(
                "Pass a HookedTransformerConfig or a dictionary of its fields; got "
                f"{shorten(config)}. HookedTransformer.from_pretrained takes names."
            )
        return cls.from_dict(dict(values))  # pyright: ignore[reportUnknownArgumentType]

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any]) -> "HookedTransformerConfig":
        """A configuration with these fields.

        Raises:
            InvalidConfig: a field is unknown or missing.
        """
        try:
            return cls(**config_dict)
        except TypeError as error:
            raise InvalidFields(f"HookedTransformerConfig: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """The fields; changing the dictionary changes the configuration, as in TransformerLens."""
        return self.__dict__

    def is_layer_norm_activation(self) -> bool:
        """Whether a norm follows the activation function of the MLP."""
        return self.act_fn.endswith("_ln")

    @staticmethod
    def set_seed_everywhere(seed: int) -> None:
        """Seed torch, random and numpy."""
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - what TransformerLens seeds

    def __repr__(self) -> str:
        """All fields."""
        return "HookedTransformerConfig:\n" + pprint.pformat(self.to_dict())
