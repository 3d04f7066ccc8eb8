"""Tensors and settings of dictionary files, checked before they are used.

Of a pickle, which one of the formats is, only tensors and plain values are read.
"""

import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from interp.errors import ModelLoadError, reason, shorten
from interp.io import DAMAGED, UNREADABLE, read_header, read_json, verify_checksum
from interp.loading import check_weights, unpickled

MOST_SETTINGS = 2**20
"""Maximum number of bytes of a file of settings."""

Tensors = dict[str, Tensor]
Settings = Mapping[str, Any]


def settings_of(path: Path) -> dict[str, Any]:
    """The object of a JSON file.

    Raises:
        ModelLoadError: there is none.
    """
    try:
        settings = read_json(path, MOST_SETTINGS)
    except (*UNREADABLE, ValueError) as error:
        raise ModelLoadError(f"{path} can't be read: {reason(error)}.") from error
    if not isinstance(settings, dict):
        raise ModelLoadError(f"{path}: an object was expected; got {shorten(settings)}.")
    return settings


def tensors_of(path: Path, dtype: torch.dtype, without: Collection[str] = ()) -> Tensors:
    """All tensors of a safetensors or NumPy file by name.

    Args:
        path: the file.
        dtype: dtype of the tensors.
        without: names of tensors of a safetensors file that are not read.

    Raises:
        ModelLoadError: the file is missing or damaged, or a value is not a finite number in
            ``dtype``.
    """
    try:
        tensors = _arrays(path) if path.suffix == ".npz" else _safetensors(path, without)
    except (*DAMAGED, *UNREADABLE, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ModelLoadError(f"{path} can't be read: {reason(error)}.") from error
    return {name: finite(tensor, dtype, f"{path}: {name}") for name, tensor in tensors.items()}


def shapes_of(path: Path) -> Tensors:
    """All tensors of a safetensors file by name, without data.

    Raises:
        ModelLoadError: the file is missing or damaged.
    """
    try:
        entries = read_header(path).entries.items()
    except (*DAMAGED, *UNREADABLE, ValueError) as error:
        raise ModelLoadError(f"{path} can't be read: {reason(error)}.") from error
    return {name: torch.empty(entry.shape, device="meta") for name, entry in entries}


def checked_file(path: Path) -> tuple[Tensors, dict[str, str]]:
    """The tensors and the metadata of a file of this package, whose checksum is compared.

    Raises:
        ModelLoadError: the file is missing or damaged.
    """
    try:
        header = read_header(path)
        verify_checksum(path, header)
        return _safetensors(path), header.metadata
    except (*DAMAGED, *UNREADABLE, ValueError) as error:
        raise ModelLoadError(f"{path} can't be read: {reason(error)}.") from error


def unpickled_of(path: Path, dtype: torch.dtype, buffers: Sequence[str]) -> tuple[Tensors, Tensors]:
    """The weights of a file of ``torch.save``, and its tensors of other names as they are.

    Args:
        path: the file, of which nothing but tensors and plain values is unpickled.
        dtype: dtype of the weights.
        buffers: names of what is not a weight.

    Raises:
        ModelLoadError: the file is missing or damaged, holds anything but tensors by name, lacks
            one of the buffers, or a value of a weight is not a finite number in ``dtype``.
    """
    state = unpickled(path, allow_pickle=True)
    tensors: dict[str, Tensor] = {}
    for name, tensor in state.items() if isinstance(state, dict) else [("all of it", state)]:
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ModelLoadError(
                f"{path}: {shorten(name)} is of the type {type(tensor).__name__}; a state dict "
                "was expected, tensors by name."
            )
        tensors[name] = tensor.detach()
    check_weights(path, tensors)
    missing = [name for name in buffers if name not in tensors]
    if missing:
        raise ModelLoadError(f"{path} lacks {', '.join(missing)}; it has {shorten([*tensors])}.")
    weights = {
        name: finite(tensor, dtype, f"{path}: {shorten(name)}").clone()
        for name, tensor in tensors.items()
        if name not in buffers
    }
    return weights, {name: tensors[name] for name in buffers}


def take(tensors: Tensors, shapes: Mapping[str, tuple[int, ...]], path: Path) -> Tensors:
    """The tensors of these names and shapes.

    Raises:
        ModelLoadError: one is missing, has another shape, or is not among them.
    """
    missing, more = sorted(set(shapes) - set(tensors)), sorted(set(tensors) - set(shapes))
    if missing or more:
        raise ModelLoadError(
            f"{path} should have the tensors {', '.join(shapes)}; missing: "
            f"{', '.join(missing) or 'none'}, unknown: {shorten(more) if more else 'none'}."
        )
    for name, shape in shapes.items():
        if tuple(tensors[name].shape) != shape:
            raise ModelLoadError(
                f"{path}: {name} has the shape {list(tensors[name].shape)}; expected {list(shape)}."
            )
    return tensors


def sizes_of(tensors: Tensors, name: str, path: Path) -> tuple[int, int]:
    """The two sizes of a matrix.

    Raises:
        ModelLoadError: it is missing, or no matrix.
    """
    if name not in tensors or tensors[name].ndim != 2:  # noqa: PLR2004 - a matrix
        raise ModelLoadError(f"{path} has no matrix {name}; it has {shorten(', '.join(tensors))}.")
    rows, columns = tensors[name].shape
    return rows, columns


def is_count(value: object, most: int) -> bool:
    """Whether a value is an integer from 1 to ``most``."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def active_count(settings: Settings, n_features: int, path: Path) -> int:
    """``k`` of some settings: the number of features that are active at a token.

    Raises:
        ModelLoadError: it is not an integer from 1 to ``n_features``.
    """
    k: Any = settings.get("k")
    if not is_count(k, n_features):
        raise ModelLoadError(
            f"{path}: k is {shorten(k)}; an integer from 1 to {n_features} was expected."
        )
    return k


def _safetensors(path: Path, without: Collection[str] = ()) -> Tensors:
    read_header(path)  # refuses what lies about its sizes, before anything is allocated
    with safe_open(str(path), framework="pt") as file:
        names = {*file.keys()}.difference(without)
        return {name: file.get_tensor(name) for name in sorted(names)}


def _arrays(path: Path) -> Tensors:
    with np.load(path, allow_pickle=False) as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


def finite(tensor: Tensor, dtype: torch.dtype, name: str) -> Tensor:
    """A tensor in another dtype.

    Raises:
        ModelLoadError: it has no real numbers, or one that is not finite in this dtype.
    """
    if not tensor.is_floating_point():
        raise ModelLoadError(f"{name} has the dtype {tensor.dtype}; real numbers were expected.")
    converted = tensor.to(dtype)
    if not converted.isfinite().all():
        kind = str(dtype).removeprefix("torch.")
        raise ModelLoadError(f"{name} has values that are not finite numbers in {kind}.")
    return converted
