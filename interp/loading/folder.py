"""Load a model from a folder: ``config.json``, weights, ``tokenizer.json``.

A ``config.json`` with ``model_type`` is foreign, and is interpreted by its family (see
:mod:`interp.loading.registry`); any other holds an :class:`interp.Config`. Nothing in a folder is
executed: entries such as ``auto_map`` are ignored.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from interp.config import Config
from interp.errors import InvalidConfig, ModelLoadError, reason, shorten
from interp.io import read_json
from interp.loading.assemble import assemble, assemble_native
from interp.loading.chat_templates import chat_of_folder
from interp.loading.registry import family_of
from interp.loading.source import SafetensorsSource, open_weights
from interp.loading.special_tokens import as_tokenizer, attach_tokenizer, set_tokenizer
from interp.loading.tokenizer_config import configure, read_tokenizer_config
from interp.saved import CONFIG, STEPS, TOKENIZER, weights_file
from interp.text import Tokenizer
from interp.transformer import Transformer

ADAPTER, GENERATION = "adapter_config.json", "generation_config.json"
MAX_CONFIG_BYTES = 2**22


def load_folder(  # noqa: PLR0913 - the arguments of load
    folder: Path,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    tokenizer: object = None,
    *,
    step: int | None = None,
    variant: str | None = None,
    allow_pickle: bool = False,
    strict: bool = False,
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
        variant: the variant of the weights, such as ``"fp16"``; ``None`` means those without one.
        allow_pickle: allow reading ``pytorch_model.bin`` if there are no safetensors.
        strict: as for :func:`interp.load`.

    Raises:
        ModelLoadError: a file is missing or damaged, the family is not supported, or the weights
            do not match the configuration; the folder holds an adapter.
    """
    check_whole(folder)
    config_json = read_config(folder / CONFIG)
    with errors_of(folder):
        tokenizer = tokenizer_of(folder, tokenizer)
        if "model_type" in config_json and step is None:
            source = open_weights(folder, variant, allow_pickle=allow_pickle)
            model = assemble(
                family_of(config_json), config_json, source, dtype, device, strict=strict
            )
            model.config = replace(model.config, name=folder.resolve().name)
            set_tokenizer(model, config_json, tokenizer, generation_of(folder))
        else:
            weights = None if step is None else _weights_of_step(folder, step)
            config = Config.from_dict(config_json)
            if weights is None:
                source = open_weights(folder, variant, allow_pickle=allow_pickle)
            else:
                source = SafetensorsSource(folder, weights)
            model = assemble_native(config, source, dtype or source.compute_dtype, device)
            attach_tokenizer(model, tokenizer)
    return model


@contextmanager
def errors_of(folder: Path) -> Generator[None]:
    """Name the folder in errors that arise while it is loaded.

    Raises:
        ModelLoadError: in place of an error that does not name the folder.
    """
    try:
        yield
    except InvalidConfig as error:
        raise ModelLoadError(f"{folder / CONFIG} does not describe a model: {error}") from error
    except ModelLoadError as error:
        raise ModelLoadError(_with_folder(folder, error)) from error


def tokenizer_of(folder: Path, tokenizer: object = None) -> Tokenizer | None:
    """The ``tokenizer=`` argument or, without one, the tokenizer of the folder, if it has one.

    The settings of ``tokenizer_config.json`` are applied to the folder's.
    """
    if tokenizer is not None:
        return as_tokenizer(tokenizer)
    path = folder / TOKENIZER
    if not path.exists():
        return None
    settings = read_tokenizer_config(folder)
    return Tokenizer.from_file(
        path,
        configure=lambda backend: configure(backend, settings),
        chat=chat_of_folder(folder, settings),
    )


def generation_of(folder: Path) -> dict[str, Any]:
    """The content of ``generation_config.json``; empty if there is none."""
    path = folder / GENERATION
    return read_config(path) if path.exists() else {}


def steps_of(folder: Path) -> list[int]:
    """The training steps, in order, whose weights the folder has in addition to the final ones."""
    names = [path.stem for path in (folder / STEPS).glob("*.safetensors")]
    return sorted(int(name) for name in names if name.isdecimal())


def check_whole(folder: Path) -> None:
    """Refuse an adapter, which changes the weights of another model.

    Raises:
        ModelLoadError: the folder holds one.
    """
    path = folder / ADAPTER
    if not path.exists():
        return
    fields = read_config(path)
    kind, base = (shorten(fields.get(name)) for name in ("peft_type", "base_model_name_or_path"))
    raise ModelLoadError(
        f"{folder} holds an adapter (peft_type={kind}) of the model {base}, not a model. Merge it "
        "into that model with peft, AutoPeftModel.from_pretrained(FOLDER).merge_and_unload()"
        ".save_pretrained(NEW) (or AutoPeftModelForCausalLM, …), and load NEW."
    )


def _weights_of_step(folder: Path, step: int) -> Path:
    steps = steps_of(folder)
    if step not in steps:
        listed = ", ".join(map(str, steps)) or "none"
        raise ModelLoadError(f"{folder} has no weights of step {step}; its steps: {listed}.")
    return weights_file(folder, step)


def read_config(path: Path) -> dict[str, Any]:
    """The content of a configuration.

    Raises:
        ModelLoadError: it can't be read, is too large, or is not a JSON object.
    """
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
