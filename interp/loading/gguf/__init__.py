"""GGUF files, in which llama.cpp and Ollama keep a model with its configuration and tokenizer.

Weights are dequantised to the dtype that is asked for; the name of the model says what they were.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from interp.errors import ModelLoadError
from interp.loading.assemble import assemble
from interp.loading.gguf.files import name_of_file, read_files
from interp.loading.gguf.header import GgufEntry
from interp.loading.gguf.settings import architecture_of, config_of
from interp.loading.gguf.tensors import ROPE_TENSORS, GgufSource, read_tensor
from interp.loading.gguf.tokenizer import tokenizer_of
from interp.loading.registry import family_of
from interp.loading.special_tokens import as_tokenizer, set_tokenizer
from interp.transformer import Transformer

__all__ = ["GGUF_SUFFIX", "GgufEntry", "load_gguf", "name_of_file"]

GGUF_SUFFIX = ".gguf"
ENDS = ("eot_token_id", "eom_token_id")
"""Further tokens at which generation stops: the end of a turn and of a message."""


def load_gguf(
    path: Path,
    name: str,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    tokenizer: object = None,
    *,
    strict: bool = False,
) -> Transformer:
    """Load a model from a GGUF file.

    Args:
        path: the file; of a model that is split into several, any of them.
        name: the name of the model, to which the quantisation is added unless it is part of it.
        device: the device of the parameters.
        dtype: the dtype to compute in; ``None`` means that of most weights, and float32 if those
            are quantised.
        tokenizer: the tokenizer to use instead of the file's.
        strict: refuse metadata that is not known, which is otherwise ignored with a warning.

    Raises:
        ModelLoadError: the file is damaged; its architecture, a setting, a type of quantisation or
            its tokenizer is not supported; or the package ``gguf`` is not installed.
    """
    metadata, tensors = read_files(path)
    try:
        architecture = architecture_of(metadata, tensors)
        factors: dict[str, list[float]] = {
            key: read_tensor(tensors[key]).tolist() for key in ROPE_TENSORS if key in tensors
        }
        shapes = {key: tensor.shape for key, tensor in tensors.items()}
        fields = config_of(metadata, shapes, architecture, factors, strict=strict)
        source = GgufSource(tensors, architecture, fields, dtype)
        if tokenizer is None:
            tokenizer = tokenizer_of(metadata)
        model = assemble(family_of(fields), fields, source, dtype, device)
        set_tokenizer(model, fields, as_tokenizer(tokenizer), _generation(metadata))
    except ModelLoadError as error:
        raise ModelLoadError(f"{path}: {error}") from error
    model.config = replace(model.config, name=_named(name, source.quantisation))
    return model


def _generation(metadata: Any) -> dict[str, Any]:  # noqa: ANN401
    """The tokens at which generation stops."""
    ids = [metadata.get(f"tokenizer.ggml.{name}") for name in ("eos_token_id", *ENDS)]
    return {"eos_token_id": [id_ for id_ in ids if id_ is not None]}


def _named(name: str, quantisation: str) -> str:
    is_named = not quantisation or quantisation.lower() in name.lower()
    return name if is_named else f"{name} ({quantisation})"
