"""Load a model from a folder: ``config.json``, weights as safetensors, ``tokenizer.json``.

A ``config.json`` with ``model_type`` is foreign, and is interpreted by its family (see
:mod:`interp.loading.registry`); any other holds an :class:`interp.Config`. Nothing in a folder is
executed: entries such as ``auto_map`` are ignored.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from interp.config import Config
from interp.errors import InvalidConfig, ModelLoadError, reason
from interp.json_text import read_json
from interp.loading.assemble import assemble, assemble_native
from interp.loading.registry import family_of
from interp.loading.source import SafetensorsSource
from interp.loading.special_tokens import as_tokenizer, attach_tokenizer, set_tokenizer
from interp.saving import CONFIG, STEPS, TOKENIZER, weights_file
from interp.text.tokenizer import Tokenizer
from interp.transformer import Transformer

GENERATION = "generation_config.json"
MAX_CONFIG_BYTES = 2**22


def load_folder(
    folder: Path,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    tokenizer: object = None,
    step: int | None = None,
) -> Transformer:
    """Read a model that :func:`save_folder` wrote, or one of a supported family.

    Weights that need no conversion stay memory-mapped to their file, which makes loading fast. To
    change the file of a loaded model, replace it (as :func:`save_folder` does); do not write into
    it.

    Args:
        folder: the folder.
        device: the device of the parameters.
        dtype: the dtype to compute in; ``None`` means that of the saved model if the file records
            it, else the most frequent dtype of the weights.
        tokenizer: the tokenizer to use instead of the folder's.
        step: the training step whose weights, written by :func:`save_step`, are read; ``None``
            means the final weights.

    Raises:
        ModelLoadError: a file is missing or damaged, the family is not supported, or the weights
            do not match the configuration.
    """
    config_json = _read_config(folder / CONFIG)
    path = folder / TOKENIZER
    stored = Tokenizer.from_file(path) if tokenizer is None and path.exists() else None
    tokenizer = stored or as_tokenizer(tokenizer)
    try:
        if "model_type" in config_json and step is None:
            source = SafetensorsSource(folder)
            model = assemble(family_of(config_json), config_json, source, dtype, device)
            model.config = replace(model.config, name=folder.resolve().name)
            path = folder / GENERATION
            generation = _read_config(path) if path.exists() else {}
            set_tokenizer(model, config_json, tokenizer, generation)
        else:
            weights = None if step is None else _weights_of_step(folder, step)
            config, source = Config.from_dict(config_json), SafetensorsSource(folder, weights)
            model = assemble_native(config, source, dtype or source.compute_dtype, device)
            attach_tokenizer(model, tokenizer)
    except InvalidConfig as error:
        raise ModelLoadError(f"{folder / CONFIG} does not describe a model: {error}") from error
    except ModelLoadError as error:
        raise ModelLoadError(_with_folder(folder, error)) from error
    return model


def steps_of(folder: Path) -> list[int]:
    """The training steps, in order, whose weights the folder has in addition to the final ones."""
    names = [path.stem for path in (folder / STEPS).glob("*.safetensors")]
    return sorted(int(name) for name in names if name.isdecimal())


def _weights_of_step(folder: Path, step: int) -> Path:
    steps = steps_of(folder)
    if step not in steps:
        known = ", ".join(map(str, steps)) or "none"
        raise ModelLoadError(f"{folder} has no weights of step {step}; its steps: {known}.")
    return weights_file(folder, step)


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config_json = read_json(path, MAX_CONFIG_BYTES)
    except OSError as error:
        raise ModelLoadError(f"{path} can't be read: {reason(error)}.") from error
    except ValueError as error:
        raise ModelLoadError(f"{path} does not describe a model: {reason(error)}.") from error
    if not isinstance(config_json, dict):
        raise ModelLoadError(f"{path} does not describe a model: it is not a JSON object.")
    return config_json


def _with_folder(folder: Path, error: ModelLoadError) -> str:
    """The error's message, preceded by the folder's path unless it contains it."""
    return str(error) if str(folder) in str(error) else f"{folder}: {error}"
