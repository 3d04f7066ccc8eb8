"""A model as a folder: ``config.json``, its weights as safetensors, ``tokenizer.json``.

Our own folders hold our own configuration; any other that says ``model_type`` is read by its family
(see :mod:`interp.loading.foreign`). Nothing in a folder is ever run as code: ``auto_map`` and the
like are only text.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from interp.config import Config
from interp.errors import InvalidConfig, ModelLoadError, OutOfResources
from interp.files import write_whole
from interp.loading.assemble import as_written, assembled
from interp.loading.foreign import family_of
from interp.loading.source import Files
from interp.loading.special_tokens import attach, equip, given_tokenizer
from interp.tokenizer import Tokenizer
from interp.transformer import Transformer

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
MOST_CONFIG = 2**24


def save_folder(model: Transformer, folder: Path, dtype: torch.dtype | None = None) -> None:
    """Write a model; each file is complete or not there.

    Args:
        model: what to write.
        folder: made if need be.
        dtype: store weights as this type; ``None`` keeps theirs.

    Raises:
        OutOfResources: the folder can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: tensor.to(dtype).contiguous() for name, tensor in _weights(model).items()}
        write_whole(folder / WEIGHTS, lambda path: save_file(weights, path))
        write_whole(folder / CONFIG, lambda path: path.write_text(model.config.to_json()))
        if model.tokenizer is not None:
            model.tokenizer.save(folder / TOKENIZER)
        else:
            (folder / TOKENIZER).unlink(missing_ok=True)
    except OSError as error:
        raise OutOfResources(f"{folder} can't be written: {error}.") from error


def load_folder(
    folder: Path,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    tokenizer: object = None,
) -> Transformer:
    """Read a model: one that :func:`save_folder` wrote, or one of a family that is known.

    Weights that are taken as they are stay mapped to their file, which is why loading is fast: who
    changes the file under a loaded model should replace it (as :func:`save_folder` does), and not
    write into it.

    Raises:
        ModelLoadError: a file is missing or damaged, the family is not known, or the weights are
            not this configuration's.
    """
    fields = _read_config(folder / CONFIG)
    path = folder / TOKENIZER
    own = Tokenizer.from_file(path) if tokenizer is None and path.exists() else None
    reader = own or given_tokenizer(tokenizer)
    try:
        if "model_type" in fields:
            model = assembled(family_of(fields), fields, Files(folder), dtype, device)
            model.config = replace(model.config, name=folder.resolve().name)
            equip(model, fields, reader)
        else:
            model = as_written(Config.from_dict(fields), Files(folder), dtype, device)
            attach(model, reader)
    except InvalidConfig as error:
        raise ModelLoadError(f"{folder / CONFIG} does not describe a model: {error}") from error
    except ModelLoadError as error:
        raise ModelLoadError(_within(folder, error)) from error
    return model


def _weights(model: Transformer) -> dict[str, Tensor]:
    """Parameters by name, shared ones once."""
    return {name: p.detach() for name, p in model.named_parameters()}


def _read_config(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MOST_CONFIG:
            raise ModelLoadError(f"{path} is larger than any configuration.")
        fields = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except OSError as error:
        raise ModelLoadError(f"{path} can't be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path} does not describe a model: {error}") from error
    if not isinstance(fields, dict):
        raise ModelLoadError(f"{path} does not describe a model: it is no object with fields.")
    return fields


def _no_number(name: str) -> None:
    """NaN and infinity, which Python would read."""
    raise ValueError(f"{name} is no number.")


def _within(folder: Path, error: ModelLoadError) -> str:
    """An error's message, with the folder in front."""
    return str(error) if str(folder) in str(error) else f"{folder}: {error}"
