"""Checkpoints of nanoGPT (``ckpt.pt``), which are pickles: read only if allowed, weights only.

Unpickling can execute code. ``weights_only=True`` reads tensors and plain containers and refuses
everything else; there is no fallback.
"""

import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

import torch
from torch import Tensor

from interp.errors import ModelLoadError, first_line, reason, shorten
from interp.files import open_regular, size_of
from interp.loading.assemble import assemble
from interp.loading.registry import families
from interp.loading.source import StateDictSource
from interp.loading.special_tokens import as_tokenizer, set_tokenizer
from interp.transformer import Transformer

SUFFIXES = (".pt", ".pth", ".ckpt", ".bin")
TIED = 2
"""How many times a number of the file may occur in the weights; twice, if the embedding and the
unembedding share it."""


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
        _check_archive(path)
        # Memory-mapped, so that no tensor is allocated or extends beyond the file.
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise ModelLoadError(
            f"{path} holds more than weights and plain values, so it is not read: "
            f"{first_line(error)}"
        ) from error
    except Exception as error:  # damaged files make the unpickler raise exceptions of any type
        raise ModelLoadError(f"{path} is not a valid checkpoint: {reason(error)}.") from error


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
    check_weights(path, weights)
    return content


def _check_archive(path: Path) -> None:
    """Check that the archive holds no more bytes than the file, uncompressed.

    Raises:
        OSError: there is no such file, or no permission.
        ValueError: it is not a regular file, is not an archive, or its parts are compressed or
            overlap.
    """
    with open_regular(path) as file:
        size = size_of(file)
        if not is_zipfile(file):
            raise ValueError(
                "it is not a zip archive, the format of torch.save since version 1.6; save it again"
            )
        with ZipFile(file) as archive:
            if sum(part.file_size for part in archive.infolist()) > size:
                raise ValueError("its parts have more bytes than the file")


def check_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Refuse tensors that take more than twice the size of the file (tied weights count twice).

    Raises:
        ModelLoadError: a tensor is sparse or quantised, or tensors repeat numbers of the file.
    """
    for name, weight in weights.items():
        if weight.layout != torch.strided or weight.is_quantized:
            raise ModelLoadError(
                f"{path}: {shorten(name)} is sparse or quantised; store it as a dense tensor."
            )
    size = path.stat().st_size
    total = sum(weight.numel() * weight.itemsize for weight in weights.values())
    if total > TIED * size:
        raise ModelLoadError(
            f"{path}: its weights have {total} bytes, but the file only {size}: tensors repeat "
            "numbers of the file. Save contiguous copies of them."
        )
