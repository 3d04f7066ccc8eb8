"""Small architectures in the fields of TransformerLens, one of each kind that it has."""

from typing import Any

import pytest
import torch

from interp.compat import HookedTransformer, HookedTransformerConfig

N_CTX, D_VOCAB = 20, 50
ROTARY = {"positional_embedding_type": "rotary", "rotary_dim": 8}
GATED = {"gated_mlp": True, "normalization_type": "RMS"}
SHAPES: dict[str, dict[str, Any]] = {
    "gpt2": {"act_fn": "gelu_new"},
    "pythia": {"act_fn": "gelu", **ROTARY, "rotary_dim": 4, "parallel_attn_mlp": True},
    "gpt-neo": {
        "act_fn": "gelu_new",
        "use_attn_scale": False,
        "use_local_attn": True,
        "window_size": 3,
        "attn_types": ["global", "local"],
    },
    "opt": {"act_fn": "relu"},
    "bloom": {
        "act_fn": "gelu_fast",
        "positional_embedding_type": "alibi",
        "post_embedding_ln": True,
    },
    "llama": {"act_fn": "silu", **GATED, **ROTARY, "n_key_value_heads": 2},
    "gemma-2": {
        "act_fn": "gelu_pytorch_tanh",
        **GATED,
        **ROTARY,
        "use_normalization_before_and_after": True,
        "attn_scores_soft_cap": 5.0,
        "output_logits_soft_cap": 3.0,
    },
    "solu": {"act_fn": "solu_ln"},
    "attention-only": {"attn_only": True, "normalization_type": None},
    "folded": {"act_fn": "gelu", "normalization_type": "LNPre", "d_vocab_out": 7},
}


def fields(name: str, dtype: torch.dtype = torch.float64) -> dict[str, Any]:
    """The fields of a configuration."""
    sizes = {"d_model": 32, "d_head": 8, "n_heads": 4, "n_layers": 2, "d_mlp": 48}
    return {
        **sizes,
        "n_ctx": N_CTX,
        "d_vocab": D_VOCAB,
        "seed": 3,
        "device": "cpu",
        "dtype": dtype,
        **SHAPES[name],
    }


def built(name: str) -> HookedTransformer:
    """A random model in which every bias and gain matters."""
    made = HookedTransformer(HookedTransformerConfig(**fields(name)))
    perturb(made)
    return made


def perturb(model: torch.nn.Module) -> None:
    """Move every parameter away from its initial value."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(0.1 * drawn)


def tokens(rows: int = 2, columns: int = 9, below: int = 7) -> torch.Tensor:
    """Random ids that every shape can read and predict."""
    return torch.randint(0, below, (rows, columns), generator=torch.Generator().manual_seed(0))


def build(name: str, dtype: torch.dtype = torch.float64) -> tuple[HookedTransformer, Any]:
    """The façade and TransformerLens's model, with the same weights."""
    theirs = pytest.importorskip("transformer_lens")
    model = theirs.HookedTransformer(theirs.HookedTransformerConfig(**fields(name, dtype)))
    perturb(model)
    ours = HookedTransformer(HookedTransformerConfig(**fields(name, dtype)))
    ours.load_state_dict(model.state_dict())
    return ours, model


def close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-9) -> None:
    """Equal up to rounding; −∞ counts as 0."""
    assert actual.shape == expected.shape
    actual, expected = (x.detach().nan_to_num(neginf=0.0) for x in (actual, expected))
    assert (actual - expected).abs().max() <= tolerance * max(1.0, expected.abs().max())
