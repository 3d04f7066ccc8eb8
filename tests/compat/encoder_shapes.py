"""Small encoders and encoder–decoders in the fields of TransformerLens, one of each kind."""

from typing import Any

import torch

from tests.compat.shapes import D_VOCAB

SIZES: dict[str, Any] = {
    **{"d_model": 24, "d_head": 6, "n_heads": 3, "n_layers": 2, "d_mlp": 20},
    **{"n_ctx": 12, "d_vocab": D_VOCAB, "seed": 3, "device": "cpu"},
}
BERT: dict[str, dict[str, Any]] = {
    "bert": {"act_fn": "gelu", "eps": 1e-12},
    "gated": {"act_fn": "relu", "gated_mlp": True, "use_attn_scale": False},
    "soft-cap": {"act_fn": "gelu_new", "attn_scores_soft_cap": 2.0, "d_vocab_out": 7},
    "causal": {"act_fn": "silu", "attention_dir": "causal"},
}
BUCKETS = {
    "positional_embedding_type": "relative_positional_bias",
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 6,
    "use_attn_scale": False,
    "eps": 1e-6,
}
T5: dict[str, dict[str, Any]] = {
    "t5": {"act_fn": "relu", "tie_word_embeddings": True, **BUCKETS},
    "gated": {"act_fn": "gelu_new", "gated_mlp": True, **BUCKETS},
    "scaled": {"act_fn": "silu", **BUCKETS, "use_attn_scale": True},
}
OF_BERT = ("use_attn_result", "use_split_qkv_input", "use_hook_mlp_in")
OF_T5 = ("use_attn_result", "use_hook_mlp_in")
"""TransformerLens's T5 raises with split inputs: its cross-attention does not split them."""


def fields(values: dict[str, Any], dtype: torch.dtype = torch.float64) -> dict[str, Any]:
    """The fields of a configuration."""
    return {"attention_dir": "bidirectional", "dtype": dtype, **SIZES, **values}


def drawn(model: torch.nn.Module) -> None:
    """Weights so large that attention attends, and every bias and gain matters."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator))


def ids(columns: int = 7, below: int = D_VOCAB) -> torch.Tensor:
    """Two rows of random ids."""
    return torch.randint(0, below, (2, columns), generator=torch.Generator().manual_seed(columns))


def padded(*lengths: int, columns: int = 7) -> torch.Tensor:
    """1 at the first tokens of each row."""
    return torch.tensor([[1] * n + [0] * (columns - n) for n in lengths])


def recorded(
    model: Any, *inputs: torch.Tensor, **options: Any
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Logits, and every activation with its gradient; those of parameters are in ``.grad``."""
    cache, forward, backward = model.get_caching_hooks(incl_bwd=True)
    with model.hooks(forward, backward):
        logits = model(*inputs, **options)
        logits.square().mean().backward()
    return logits, cache


def edit(x: torch.Tensor, hook: Any) -> None:
    """Changes what a norm, a softmax or a sum reads, in place."""
    x *= 1.5
    x[..., 0] += 1.0


def returned(x: torch.Tensor, hook: Any) -> torch.Tensor:
    """The same, as a new tensor."""
    x = x.clone()
    edit(x, hook)
    return x


def close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-9) -> None:
    """Within a tolerance relative to the largest finite number, −∞ where it is expected."""
    assert actual.shape == expected.shape
    assert torch.equal(actual.isinf(), expected.isinf())
    actual, expected = (x.detach().masked_fill(x.isinf(), 0.0) for x in (actual, expected))
    huge = expected.abs() > 1e30
    assert torch.equal(actual[huge], expected[huge])
    actual, expected = actual.masked_fill(huge, 0.0), expected.masked_fill(huge, 0.0)
    assert (actual - expected).abs().max() <= tolerance * max(1.0, float(expected.abs().max()))
