"""A checkpoint of nanoGPT: ``ckpt.pt``, a pickle. Read only if allowed, and then weights alone.

A pickle can run code when it is read. ``weights_only=True`` reads numbers and plain containers and
refuses all else; there is no way around it here.
"""

import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.errors import ModelLoadError, first_line
from interp.loading.assemble import assembled
from interp.loading.registry import families
from interp.loading.source import Live
from interp.loading.special_tokens import equip, given_tokenizer
from interp.transformer import Transformer

SUFFIXES = (".pt", ".pth", ".ckpt", ".bin")


def is_checkpoint(path: Path) -> bool:
    """Whether a file looks like a pickle of weights."""
    return path.is_file() and path.suffix in SUFFIXES


def load_checkpoint(
    path: Path,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    tokenizer: object = None,
    *,
    allow_pickle: bool = False,
) -> Transformer:
    """Read what nanoGPT's ``train.py`` writes.

    Raises:
        ModelLoadError: it was not allowed, the file holds more than weights, or is no checkpoint
            of nanoGPT.
    """
    if not allow_pickle:
        raise ModelLoadError(
            f"{path} is a pickle, which can run code when it is read. If you trust it, say "
            "load(..., allow_pickle=True) (only weights are read even then), or turn it into "
            f"safetensors once: interp convert {path} FOLDER --allow-pickle."
        )
    held = _read(path)
    fields = {**held["model_args"], "model_type": "nanogpt"}
    model = assembled(families()["nanogpt"], fields, Live(held["model"]), dtype, device)
    model.config = replace(model.config, name=path.stem)
    equip(model, fields, given_tokenizer(tokenizer))
    return model


def _read(path: Path) -> Mapping[str, Any]:
    try:
        held = torch.load(path, map_location="cpu", weights_only=True, mmap=False)
    except pickle.UnpicklingError as error:
        raise ModelLoadError(
            f"{path} holds more than weights and plain values, and is not read: {first_line(error)}"
        ) from error
    except Exception as error:  # the unpickler raises whatever damaged bytes lead it to
        raise ModelLoadError(f"{path} is no sound checkpoint: {first_line(error)}") from error
    if not isinstance(held, Mapping) or not {"model", "model_args"} <= set(held):
        raise ModelLoadError(
            f"{path} is no checkpoint of nanoGPT, which holds 'model' and 'model_args'; give other "
            "models as a folder with safetensors."
        )
    weights, arguments = held["model"], held["model_args"]
    sound = isinstance(weights, Mapping) and isinstance(arguments, Mapping)
    sound = sound and all(isinstance(name, str) for name in (*weights, *arguments))
    if not sound or not all(isinstance(weight, Tensor) for weight in weights.values()):
        raise ModelLoadError(f"{path}: 'model' should hold tensors by name, 'model_args' settings.")
    return held
