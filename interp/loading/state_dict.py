"""Load a model from its own state dict and its configuration.

    torch.save(model.state_dict(), "model.pt")
    model = interp.load("model.pt", config=config, allow_pickle=True)

A folder written by ``model.save`` needs neither: it also holds the configuration and the tokenizer.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.config import Config
from interp.errors import ModelLoadError, shorten
from interp.loading.assemble import assemble_native, meta_model
from interp.loading.checkpoint import is_checkpoint
from interp.loading.pickle_file import check_weights, unpickled
from interp.loading.source import SafetensorsSource, StateDictSource
from interp.loading.special_tokens import as_tokenizer, attach_tokenizer
from interp.transformer import Transformer


def load_state_dict(
    source: object,
    config: Config,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    tokenizer: object = None,
    *,
    allow_pickle: bool = False,
) -> Transformer:
    """The model of a configuration, with the weights of a state dict.

    Args:
        source: a ``state_dict()``, or a file of one: safetensors, or a pickle of ``torch.save``.
        config: the configuration of the model that had these weights.
        device: the device of the parameters.
        dtype: the dtype to compute in; ``None`` means the most frequent dtype of the weights.
        tokenizer: the model's tokenizer.
        allow_pickle: allow reading a pickle (only its weights are read).

    Raises:
        ModelLoadError: the weights do not match the configuration, or can't be read.
    """
    weights = _without_copies(_weights(source, allow_pickle=allow_pickle), config)
    model = assemble_native(config, StateDictSource(weights), dtype, device)
    attach_tokenizer(model, as_tokenizer(tokenizer))
    return model


def _weights(source: Any, *, allow_pickle: bool) -> dict[str, Tensor]:  # noqa: ANN401 - checked
    content: object = source
    if isinstance(source, str | Path):
        path = Path(source)
        if is_checkpoint(path):
            content = unpickled(path, allow_pickle=allow_pickle)
        else:
            file = SafetensorsSource(path.parent, path)
            content = {key: file.read(key) for key in file.keys()}  # noqa: SIM118 - no dictionary
    weights: dict[str, Tensor] = {}
    for name, weight in content.items() if isinstance(content, Mapping) else [(None, content)]:
        if not isinstance(name, str) or not isinstance(weight, Tensor):
            raise ModelLoadError(
                "With config=, a model is loaded from a state dict, which maps names to tensors, "
                f"or from a file of one; got {shorten(weight)}."
            )
        if weight.layout != torch.strided or weight.is_quantized:
            raise ModelLoadError(f"{shorten(name)} is sparse or quantised; pass a dense tensor.")
        weights[name] = weight
    if isinstance(source, str | Path) and is_checkpoint(Path(source)):
        check_weights(Path(source), weights)
    return weights


def _without_copies(weights: Mapping[str, Tensor], config: Config) -> dict[str, Tensor]:
    """The weights, each shared one under one name only (a state dict has it under all its names).

    Raises:
        ModelLoadError: the tensors of a shared weight differ.
    """
    names: dict[int, str] = {}
    remaining = dict(weights)
    for name, parameter in meta_model(config).named_parameters(remove_duplicate=False):
        first = names.setdefault(id(parameter), name)
        if name == first or name not in remaining:
            continue
        copy = remaining.pop(name)
        if not torch.equal(remaining.setdefault(first, copy), copy):
            raise ModelLoadError(
                f"{first} and {name} are one weight of this configuration, but differ in the "
                "state dict; is config= that of another model?"
            )
    return remaining
