"""Checkpoints of nanoGPT (``ckpt.pt``), which are pickles: read only if allowed, weights only."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.errors import ModelLoadError
from interp.loading.assemble import assemble
from interp.loading.pickle_file import check_weights, unpickled
from interp.loading.registry import families
from interp.loading.source import StateDictSource
from interp.loading.special_tokens import as_tokenizer, set_tokenizer
from interp.transformer import Transformer

SUFFIXES = (".pt", ".pth", ".ckpt", ".bin")


def is_checkpoint(path: Path) -> bool:
    """Whether a path is a file with the suffix of a pickled checkpoint."""
    return path.is_file() and path.suffix in SUFFIXES


def load_checkpoint(
    path: Path,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    tokenizer: object = None,
    *,
    allow_pickle: bool = False,
) -> Transformer:
    """Read a checkpoint that nanoGPT's ``train.py`` wrote.

    Raises:
        ModelLoadError: ``allow_pickle`` is not set, the file holds more than weights, or it is
            not a checkpoint of nanoGPT.
    """
    content = _checked(path, unpickled(path, allow_pickle=allow_pickle))
    config_json = {**content["model_args"], "model_type": "nanogpt"}
    source = StateDictSource(content["model"])
    model = assemble(families()["nanogpt"], config_json, source, dtype, device)
    model.config = replace(model.config, name=path.stem)
    set_tokenizer(model, config_json, as_tokenizer(tokenizer))
    return model


def _checked(path: Path, content: object) -> Mapping[str, Any]:
    """The checkpoint's content, with ``model`` and ``model_args`` checked."""
    if not isinstance(content, Mapping) or not {"model", "model_args"} <= set(content):
        raise ModelLoadError(
            f"{path} is not a checkpoint of nanoGPT, which has the entries 'model' and "
            "'model_args'. A state dict needs its configuration: load(..., config=); other models "
            "are loaded by the folder with their config.json."
        )
    weights, arguments = content["model"], content["model_args"]
    valid = isinstance(weights, Mapping) and isinstance(arguments, Mapping)
    valid = valid and all(isinstance(name, str) for name in (*weights, *arguments))
    if not valid or not all(isinstance(weight, Tensor) for weight in weights.values()):
        raise ModelLoadError(
            f"{path}: 'model' should map names to tensors, and 'model_args' names to settings."
        )
    check_weights(path, weights)
    return content
