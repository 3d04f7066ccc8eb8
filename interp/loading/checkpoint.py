"""Checkpoints of nanoGPT (``ckpt.pt``): pickles, read only if allowed, and only as weights.

Unpickling can execute code. ``weights_only=True`` reads tensors and plain containers and refuses
everything else; there is no fallback.
"""

import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.errors import ModelLoadError, first_line
from interp.loading.assemble import assemble
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


def unpickled(path: Path, *, allow_pickle: bool) -> object:
    """The content of a pickle: tensors and plain values.

    Raises:
        ModelLoadError: ``allow_pickle`` is not set, or the file is damaged or holds anything else.
    """
    if not allow_pickle:
        raise ModelLoadError(
            f"{path} is a pickle, which can execute code when it is read. If you trust it, pass "
            "load(..., allow_pickle=True) (only weights are read even then), or convert it to "
            f"safetensors once: interp convert {path} FOLDER --allow-pickle."
        )
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=False)
    except pickle.UnpicklingError as error:
        raise ModelLoadError(
            f"{path} holds more than weights and plain values, so it is not read: "
            f"{first_line(error)}"
        ) from error
    except Exception as error:  # damaged files make the unpickler raise exceptions of any type
        raise ModelLoadError(f"{path} is not a valid checkpoint: {first_line(error)}") from error


def _checked(path: Path, content: object) -> Mapping[str, Any]:
    """The checkpoint's content, with ``model`` and ``model_args`` checked."""
    if not isinstance(content, Mapping) or not {"model", "model_args"} <= set(content):
        raise ModelLoadError(
            f"{path} is not a checkpoint of nanoGPT, which has the entries 'model' and "
            "'model_args'. A state dict needs its configuration: load(..., config=); load other "
            "models from a folder with safetensors."
        )
    weights, arguments = content["model"], content["model_args"]
    valid = isinstance(weights, Mapping) and isinstance(arguments, Mapping)
    valid = valid and all(isinstance(name, str) for name in (*weights, *arguments))
    if not valid or not all(isinstance(weight, Tensor) for weight in weights.values()):
        raise ModelLoadError(
            f"{path}: 'model' should map names to tensors, and 'model_args' names to settings."
        )
    return content
