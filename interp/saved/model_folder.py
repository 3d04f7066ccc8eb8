"""Saves a model as a folder: configuration, weights as safetensors, tokenizer, chat templates.

:func:`interp.load` reads it and returns a bit-identical model.
"""

import json
from pathlib import Path

import torch

from interp.errors import InvalidInput, OutOfResources, shorten
from interp.io import atomic_folder, save_tensors, write_text_whole, write_whole
from interp.transformer import TextNetwork

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
STEPS = "steps"
"""The subfolder of a model's folder with the weights after some steps of its training."""
CHAT = "chat_templates.json"
"""The file of a folder with the chat templates of the model."""
COMPUTE_DTYPE = "computes_in"
"""Metadata entry of a weights file: the dtype of the model that was saved."""


def save_folder(model: TextNetwork, folder: Path, dtype: torch.dtype | None = None) -> None:
    """Write a model to a folder, whose files are replaced atomically.

    Args:
        model: the model.
        folder: created if missing; replaced if this package wrote all its files.
        dtype: dtype of the stored weights; ``None`` keeps that of the model. In either case the
            model is loaded in the dtype that it has now.

    Raises:
        InvalidInput: the folder has files that this package did not write, or ``dtype`` is not a
            floating-point dtype.
        OutOfResources: the folder can't be written, or another process is writing it.
    """
    _check(model, dtype)
    with atomic_folder(folder) as new:
        write_files(model, new, dtype)


def _check(model: TextNetwork, dtype: object) -> None:
    model.require_whole("save")
    is_floating_point = isinstance(dtype, torch.dtype) and dtype.is_floating_point
    if dtype is not None and not is_floating_point:
        raise InvalidInput(f"dtype={shorten(dtype)} should be a floating-point dtype of torch.")
    if model.device.type == "meta":
        raise InvalidInput("This model is on the meta device: it has no weights to save.")


def write_files(model: TextNetwork, folder: Path, dtype: torch.dtype | None = None) -> None:
    """Write the files of a model into an existing folder, as for :func:`save_folder`.

    Raises:
        OutOfResources: the folder can't be written.
    """
    try:
        _write_weights(model, folder / WEIGHTS, dtype)
        write_text_whole(folder / CONFIG, model.config.to_json())
        if model.tokenizer is not None:
            model.tokenizer.save(folder / TOKENIZER)
            chat = model.tokenizer.chat
            if chat is not None and not chat.problem:
                write_text_whole(folder / CHAT, json.dumps(chat.to_json(), indent=1))
    except OSError as error:
        raise OutOfResources(f"{folder} can't be written: {error}.") from error


def save_step(model: TextNetwork, folder: Path, step: int, dtype: torch.dtype) -> None:
    """Write the weights after ``step`` training steps, beside the final ones of the folder.

    Raises:
        OutOfResources: the folder can't be written.
    """
    try:
        (folder / STEPS).mkdir(parents=True, exist_ok=True)
        _write_weights(model, weights_file(folder, step), dtype)
    except OSError as error:
        raise OutOfResources(f"{folder} can't be written: {error}.") from error


def weights_file(folder: Path, step: int | None = None) -> Path:
    """The file in a folder of the final weights, or of the weights of a training step."""
    return folder / (WEIGHTS if step is None else f"{STEPS}/{step:06d}.safetensors")


def _write_weights(model: TextNetwork, path: Path, dtype: torch.dtype | None) -> None:
    """Write all parameters by name; a shared parameter is stored once."""
    named = {name: weight.detach().to(dtype) for name, weight in model.named_parameters()}
    weights = {name: tensor.contiguous() for name, tensor in named.items()}
    metadata = {COMPUTE_DTYPE: str(model.dtype).removeprefix("torch.")}
    write_whole(path, lambda path: save_tensors(weights, path, metadata))
