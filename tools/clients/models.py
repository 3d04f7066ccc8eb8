"""Small models with weights that depend on a seed and on the names of parameters only."""

from typing import Any

import torch

SIZES = {
    "d_model": 32,
    "d_head": 8,
    "n_heads": 4,
    "n_layers": 2,
    "d_mlp": 48,
    "n_ctx": 20,
    "d_vocab": 50,
    "device": "cpu",
}
SHAPES: dict[str, dict[str, Any]] = {
    "gpt2": {"act_fn": "gelu_new", "normalization_type": "LN"},
    "llama": {
        "act_fn": "silu",
        "gated_mlp": True,
        "normalization_type": "RMS",
        "positional_embedding_type": "rotary",
        "rotary_dim": 8,
        "n_key_value_heads": 2,
    },
}


def fields(shape: str) -> dict[str, Any]:
    """The fields of a configuration."""
    return {**SIZES, **SHAPES[shape]}


def draw_weights(module: torch.nn.Module, seed: int) -> None:
    """Draw every parameter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in sorted(module.named_parameters()):
            drawn = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.3 * drawn)
