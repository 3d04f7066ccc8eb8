"""Load models: bundled ones, folders, models of the hub, live models, nanoGPT checkpoints."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from interp.config import Config
from interp.errors import ModelLoadError, nearest, shorten
from interp.loading import hub
from interp.loading.checkpoint import is_checkpoint, load_checkpoint
from interp.loading.checksums import check_listed
from interp.loading.folder import load_folder
from interp.loading.live import is_live, load_live
from interp.loading.registry import families
from interp.loading.state_dict import load_state_dict
from interp.paths import as_path
from interp.saving import CONFIG, save_folder, weights_file
from interp.transformer import Transformer

AT_STEP = re.compile(r"(?P<model>.+)@(?P<step>\d{1,9})")
MODEL_FOLDER = Path(__file__).parent.parent / "zoo" / "models"
SOURCES = (
    'a bundled name, a folder with config.json and safetensors, "hub:org/name@revision", a live '
    "model of transformers, or a checkpoint of nanoGPT"
)


def bundled() -> list[str]:
    """Names of the models that come with the toolkit."""
    return sorted(path.parent.name for path in MODEL_FOLDER.glob(f"*/{CONFIG}"))


def load(
    source: object,
    device: str | torch.device | None = None,
    *,
    dtype: torch.dtype | None = None,
    tokenizer: object = None,
    allow_pickle: bool = False,
    config: Config | None = None,
) -> Transformer:
    """Load a model in evaluation mode.

    Args:
        source: the name of a bundled model; a folder with ``config.json``, safetensors (one file
            or shards) and optionally ``tokenizer.json``; ``"hub:org/name@revision"``; a live model
            of ``transformers``, base or with a head, whose weights are copied; or a checkpoint of
            nanoGPT. ``"NAME@400"`` is a model after 400 training steps, if its folder has the
            weights of that step.
        device: the device of the parameters; by default that of a live model, else the CPU.
        dtype: the dtype to compute in. ``None`` means the dtype of the weights or, for a model
            saved by this toolkit, the dtype it had when it was saved (bundled models are stored in
            half precision and run in float32).
        tokenizer: the tokenizer to use instead of the folder's: an :class:`interp.Tokenizer`, a
            tokenizer of ``tokenizers``, or a fast tokenizer of ``transformers``.
        allow_pickle: allow reading a checkpoint, which is a pickle (only its weights are read).
        config: the configuration of the model, if ``source`` is a state dict of a model of this
            package (``model.state_dict()``) or a file of one: safetensors, or a pickle written by
            ``torch.save``.

    Raises:
        ModelLoadError: the model does not exist, its family is not supported, a file is damaged,
            or the weights do not match the configuration.
    """
    if config is not None:
        return load_state_dict(source, config, device, dtype, tokenizer, allow_pickle=allow_pickle)
    if not isinstance(source, str | Path):
        return load_live(_checked_live(source), tokenizer, dtype, device)
    device, path = "cpu" if device is None else device, as_path(source)
    name = str(source)
    if name.startswith(hub.PREFIX):
        folder, hub_name = hub.fetch(name)
        return _renamed(load_folder(folder, device, dtype, tokenizer), hub_name)
    try:
        found = find_folder(name)
        holds_checkpoint, holds_model = is_checkpoint(path), path.is_dir()
    except OSError as error:
        raise ModelLoadError(f"{name[:200]!r} can't be read: {error.strerror}.") from error
    if found is not None:
        _check_bundled(*found)
        model = load_folder(found[0], device, dtype, tokenizer, step=found[1])
        return model if found[1] is None else _renamed(model, f"{model.config.name}@{found[1]}")
    if holds_checkpoint:
        return load_checkpoint(path, device, dtype, tokenizer, allow_pickle=allow_pickle)
    if holds_model:
        return load_folder(path, device, dtype, tokenizer)
    raise ModelLoadError(
        f"{shorten(name)} is neither a bundled model nor a folder.{_advice(name)} A model is "
        f"loaded from {SOURCES}. Bundled are {', '.join(bundled())}."
    )


def _checked_live(source: object) -> Any:  # noqa: ANN401 - a model of transformers has no type here
    """Return ``source`` if it is a live model.

    Raises:
        ModelLoadError: it is not.
    """
    if isinstance(source, Mapping):
        raise ModelLoadError("A state dict needs its configuration: interp.load(..., config=).")
    if not is_live(source):
        raise ModelLoadError(f"A model is loaded from {SOURCES}; got {shorten(source)}.")
    return source


def _advice(name: str) -> str:
    """A hint: the model of the hub with this short name, or bundled models with similar names."""
    known = hub.WELL_KNOWN.get(name.lower())
    if known is not None:
        return f' On the hub: interp.load("{hub.PREFIX}{known}").'
    return nearest(name, bundled())


def find_folder(name: str) -> tuple[Path, int | None] | None:
    """The folder and training step of ``"NAME"`` or ``"NAME@STEP"``.

    Returns:
        The folder of a bundled model and ``None``, or the folder of any model and a step; ``None``
        if the name has neither form.

    Raises:
        OSError: the name is not a valid file name.
    """
    if name in bundled():
        return MODEL_FOLDER / name, None
    match = AT_STEP.fullmatch(name)
    if match is None or Path(name).exists():
        return None
    model = match["model"]
    folder = MODEL_FOLDER / model if model in bundled() else Path(model)
    return (folder, int(match["step"])) if (folder / CONFIG).is_file() else None


def _check_bundled(folder: Path, step: int | None) -> None:
    """Check the weights of a bundled model against the list of checksums."""
    if folder.parent == MODEL_FOLDER:
        check_listed(weights_file(folder, step), MODEL_FOLDER)


def _renamed(model: Transformer, name: str) -> Transformer:
    """Set ``config.name`` of a model, and return the model."""
    model.config = replace(model.config, name=name)
    return model


__all__ = [
    "MODEL_FOLDER",
    "bundled",
    "families",
    "find_folder",
    "load",
    "load_folder",
    "save_folder",
]
