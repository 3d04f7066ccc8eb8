"""The folder of a dictionary: a local one, or one of a repository of the hub."""

import re
from collections.abc import Sequence
from pathlib import Path

import torch

from interp.dictionaries.circuit_tracer import SETTINGS as OF_SET
from interp.errors import InvalidInput, shorten
from interp.io import as_path
from interp.loading import PREFIX, fetch_files, published_files

INSIDE = re.compile(r"(?!.*\.\.)[\w.-]+(/[\w.-]+)*")
"""A path within a folder, without characters that patterns of files have."""
CROSS_LAYER = re.compile(r"(W_(enc|dec)|params_layer)_\d+\.safetensors")
"""Files of cross-layer transcoders of circuit-tracer and of Gemma Scope 2."""


def check_dtype(dtype: torch.dtype) -> None:
    """Refuse a dtype that weights can't have.

    Raises:
        InvalidInput: it is not a floating-point dtype.
    """
    if not dtype.is_floating_point:
        raise InvalidInput(f"dtype={shorten(dtype)} should be a floating-point dtype of torch.")


def local_folder(folder: object, inside: str, files: Sequence[str]) -> Path:
    """The path of a folder, or of one in the cache of the hub.

    Args:
        folder: a path, or ``"hub:org/name@revision"``.
        inside: path within it; empty for the folder itself.
        files: names or patterns of the files that are downloaded if the cache has none of them.

    Raises:
        InvalidInput: ``inside`` is not a path within the folder.
        ModelLoadError: the files can't be downloaded.
    """
    if inside and not INSIDE.fullmatch(inside):
        raise InvalidInput(
            f"inside={shorten(inside)} should be a path within the folder, of letters, digits, "
            'dots, hyphens and underscores, such as "layers.3.mlp" or "layer_3/width_16k".'
        )
    if is_of_hub(folder):
        return fetch_files(str(folder), inside, files)
    return as_path(folder) / inside


def is_of_hub(folder: object) -> bool:
    """Whether a folder is one of a repository of the hub."""
    return isinstance(folder, str) and folder.startswith(PREFIX)


def published_in(folder: object, inside: str) -> list[str] | None:
    """The files that a repository has in a folder; ``None`` if the hub can't be asked."""
    return published_files(str(folder), inside) if is_of_hub(folder) else None


def has_cross_layer(folder: Path) -> bool:
    """Whether a folder has files of a cross-layer transcoder."""
    return any(CROSS_LAYER.fullmatch(name) for name in _names(folder))


def advice(folder: Path) -> str:
    """What else a folder is, if it is not that of one dictionary."""
    if has_cross_layer(folder):
        return (
            " It has files of a cross-layer transcoder: read it with "
            "interp.dictionaries.load_cross_layer."
        )
    if OF_SET in _names(folder):
        return (
            f" It has {OF_SET}, so it is a set with a transcoder for each layer: read it with "
            "interp.dictionaries.load_set."
        )
    return ""


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []
