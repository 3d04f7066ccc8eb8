"""Models that are refused by name, and the part of each that this Transformer does not have.

A supported model consists of attention and MLPs that add to one residual stream. Models with other
parts are listed here by that part, which the error message names.
"""

STATE_SPACE = "state-space layers, which carry a state along the sequence instead of attending"
LINEAR_ATTENTION = (
    "layers of linear attention (a state updated token by token), which have no attention pattern"
)
LATENT = (
    "latent attention: keys and values are read from a compressed stream, and a part of each key "
    "is rotated and shared by all heads"
)

REASONS: dict[str, tuple[str, ...]] = {
    STATE_SPACE: ("mamba", "mamba2", "falcon_mamba"),
    f"{STATE_SPACE}, between attention layers": (
        *("bamba", "falcon_h1", "granitemoehybrid", "jamba", "nemotron_h", "zamba", "zamba2"),
    ),
    "recurrent layers (a state updated token by token) in place of attention": ("rwkv", "xlstm"),
    "recurrent layers (RG-LRU) between attention layers": ("recurrent_gemma",),
    LINEAR_ATTENTION: (
        *("minimax", "olmo_hybrid", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text"),
        "qwen3_next",
    ),
    "short convolutions along the sequence, between attention layers": ("lfm2", "lfm2_moe"),
    LATENT: ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "longcat_flash", "minicpm3"),
    "compressed sparse attention and several residual streams (hyper-connections)": (
        "deepseek_v4",
    ),
    "several residual streams (AltUp), an embedding in every layer, and layers that share keys and "
    "values": ("gemma3n", "gemma3n_text"),
    "an embedding in every layer, and layers that share keys and values": (
        *("gemma4", "gemma4_text"),
    ),
    "attention in chunks, queries scaled by their position, and router weights that scale what "
    "experts read": ("llama4", "llama4_text"),
    "attention that also reads relative positions as vectors (disentangled attention)": (
        *("deberta", "deberta-v2"),
    ),
    "convolutions over audio features before its encoder": ("whisper",),
    "attention to windows and to global tokens with projections of their own": ("longformer",),
    "block-sparse attention to random blocks": ("big_bird",),
    "hashed attention and reversible layers": ("reformer",),
    "two streams of attention (permutation language modelling)": ("xlnet",),
}
"""Unsupported parts, and the values of ``model_type`` of the models that have each of them."""

REFUSED = {name: reason for reason, names in REASONS.items() for name in names}
"""The unsupported part of each model, by ``model_type``."""
