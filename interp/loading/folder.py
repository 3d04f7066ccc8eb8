"""A model as a folder: ``config.json``, ``model.safetensors``, ``tokenizer.json``.

Weights are read from safetensors alone, and every one must be there, of the right shape and
finite: nothing is ever filled in at random.
"""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from interp.config import Config
from interp.errors import InvalidConfig, InvalidInput, ModelLoadError, OutOfResources
from interp.files import write_whole
from interp.tokenizer import Tokenizer
from interp.transformer import Transformer

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"


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
    except OSError as error:
        raise OutOfResources(f"{folder} can't be written: {error}.") from error


def load_folder(folder: Path, device: str | torch.device = "cpu") -> Transformer:
    """Read a model that :func:`save_folder` wrote.

    Raises:
        ModelLoadError: a file is missing or damaged, or the weights are not this configuration's.
    """
    config = _read_config(folder / CONFIG)
    weights = _read_weights(folder / WEIGHTS, device)
    tokens, path = config.tokens, folder / TOKENIZER
    tokenizer = Tokenizer.from_file(path, bos=tokens.bos, eos=tokens.eos) if path.exists() else None
    with torch.device("meta"):
        shapes = {name: t.shape for name, t in _weights(Transformer(config)).items()}
    _check_weights(weights, shapes, folder)
    dtype = next(iter(weights.values())).dtype
    model = Transformer(config, tokenizer).to(dtype=dtype, device=device)
    model.load_state_dict(weights, strict=False)  # the names were checked; tied ones stand once
    return model


def _weights(model: Transformer) -> dict[str, Tensor]:
    """Parameters by name, shared ones once."""
    return {name: p.detach() for name, p in model.named_parameters()}


def _read_config(path: Path) -> Config:
    try:
        return Config.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelLoadError(f"{path} can't be read: {error.strerror or error}.") from error
    except (InvalidConfig, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelLoadError(f"{path} does not describe a model: {error}") from error


def _read_weights(path: Path, device: str | torch.device) -> dict[str, Tensor]:
    try:
        return load_file(path, device=str(device))
    except FileNotFoundError as error:
        raise ModelLoadError(f"{path} is missing: the folder has no weights.") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelLoadError(f"{path} is not a sound safetensors file: {error}.") from error
    except (RuntimeError, AssertionError) as error:
        raise InvalidInput(f"Weights can't be put on {device}: {error}") from error


def _check_weights(weights: dict[str, Tensor], shapes: dict[str, torch.Size], folder: Path) -> None:
    for name, shape in shapes.items():
        if name not in weights:
            raise ModelLoadError(f"{folder}: the weight {name} {tuple(shape)} is missing.")
        found = weights[name]
        if found.shape != shape:
            raise ModelLoadError(
                f"{folder}: {name} is {tuple(found.shape)}; the config asks for {tuple(shape)}."
            )
        if not found.is_floating_point() or not bool(found.isfinite().all()):
            raise ModelLoadError(f"{folder}: {name} holds values that are not finite numbers.")
    extra = sorted(set(weights) - set(shapes))
    if extra:
        raise ModelLoadError(f"{folder}: {extra[0]} belongs to no part of this model.")
