"""A model as a folder: ``config.json``, its weights as safetensors, ``tokenizer.json``.

Our own folders hold our own configuration; any other that says ``model_type`` is read by its family
(see :mod:`interp.loading.registry`). Nothing in a folder is ever run as code: ``auto_map`` and the
like are only text.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from interp.config import Config
from interp.errors import InvalidConfig, ModelLoadError, OutOfResources
from interp.files import write_text_whole, write_whole
from interp.loading.assemble import as_written, assembled
from interp.loading.registry import family_of
from interp.loading.source import COMPUTES_IN, Files
from interp.loading.special_tokens import attach, equip, given_tokenizer
from interp.text.tokenizer import Tokenizer
from interp.transformer import Transformer

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
STEPS = "steps"
MOST_CONFIG = 2**24


def save_folder(model: Transformer, folder: Path, dtype: torch.dtype | None = None) -> None:
    """Write a model; each file is complete or not there.

    Args:
        model: what to write.
        folder: made if need be.
        dtype: store weights as this type; ``None`` keeps theirs. The model is loaded in the type
            that it has now, whatever it is stored as.

    Raises:
        OutOfResources: the folder can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_weights(model, folder / WEIGHTS, dtype)
        write_text_whole(folder / CONFIG, model.config.to_json())
        if model.tokenizer is not None:
            model.tokenizer.save(folder / TOKENIZER)
        else:
            (folder / TOKENIZER).unlink(missing_ok=True)
    except OSError as error:
        raise OutOfResources(f"{folder} can't be written: {error}.") from error


def save_step(model: Transformer, folder: Path, step: int, dtype: torch.dtype) -> None:
    """Write the weights that a model had after ``step`` steps of its training, beside its own.

    Raises:
        OutOfResources: the folder can't be written.
    """
    try:
        (folder / STEPS).mkdir(parents=True, exist_ok=True)
        _write_weights(model, _step_file(folder, step), dtype)
    except OSError as error:
        raise OutOfResources(f"{folder} can't be written: {error}.") from error


def load_folder(
    folder: Path,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    tokenizer: object = None,
    step: int | None = None,
) -> Transformer:
    """Read a model: one that :func:`save_folder` wrote, or one of a family that is known.

    Args:
        folder: holds it.
        device: where its weights go.
        dtype: to compute in; ``None`` means what it was saved from, or else that of the weights.
        tokenizer: in place of the folder's.
        step: take the weights that :func:`save_step` wrote after so many steps.

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
        if "model_type" in fields and step is None:
            model = assembled(family_of(fields), fields, Files(folder), dtype, device)
            model.config = replace(model.config, name=folder.resolve().name)
            equip(model, fields, reader)
        else:
            weights = None if step is None else _of_step(folder, step)
            config, files = Config.from_dict(fields), Files(folder, weights)
            model = as_written(config, files, dtype or files.computes_in, device)
            attach(model, reader)
    except InvalidConfig as error:
        raise ModelLoadError(f"{folder / CONFIG} does not describe a model: {error}") from error
    except ModelLoadError as error:
        raise ModelLoadError(_within(folder, error)) from error
    return model


def steps_of(folder: Path) -> list[int]:
    """After how many steps of training the folder has weights, beside those at the end."""
    names = [path.stem for path in (folder / STEPS).glob("*.safetensors")]
    return sorted(int(name) for name in names if name.isdecimal())


def _of_step(folder: Path, step: int) -> Path:
    known = steps_of(folder)
    if step not in known:
        held = ", ".join(map(str, known)) or "none"
        raise ModelLoadError(f"{folder} has no weights of step {step}; those of its steps: {held}.")
    return _step_file(folder, step)


def _step_file(folder: Path, step: int) -> Path:
    return folder / STEPS / f"{step:06d}.safetensors"


def _write_weights(model: Transformer, path: Path, dtype: torch.dtype | None) -> None:
    """Parameters by name, shared ones once."""
    named = {name: weight.detach().to(dtype) for name, weight in model.named_parameters()}
    weights = {name: tensor.contiguous() for name, tensor in named.items()}
    told = {COMPUTES_IN: str(model.dtype).removeprefix("torch.")}
    write_whole(path, lambda path: save_file(weights, path, told))


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
