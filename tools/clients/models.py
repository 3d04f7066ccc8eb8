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
    "gemma-2": {
        "act_fn": "gelu_pytorch_tanh",
        "gated_mlp": True,
        "normalization_type": "RMS",
        "positional_embedding_type": "rotary",
        "rotary_dim": 8,
        "use_normalization_before_and_after": True,
        "attn_scores_soft_cap": 5.0,
        "output_logits_soft_cap": 3.0,
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


def word_tokenizer() -> Any:  # noqa: ANN401 - a class of transformers
    """A tokenizer of ``transformers`` whose tokens are words, ``w3``, ``w4`` and so on."""
    import tokenizers  # noqa: PLC0415 - only some clients need it
    import transformers  # noqa: PLC0415

    special = ["<pad>", "<bos>", "<eos>"]
    words = [*special, *(f"w{i}" for i in range(3, SIZES["d_vocab"]))]
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>")
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>"
    )
    # Without these, TransformerLens loads the tokenizer anew, from the hub.
    tokenizer.init_kwargs |= {"add_bos_token": True, "name_or_path": "words"}
    return tokenizer
