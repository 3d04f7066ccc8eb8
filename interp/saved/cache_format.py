"""The file format of a cache: its stored tensors, and everything needed to derive the rest.

One safetensors file. Places that share a tensor also share it in the file. Everything else is JSON
in the header, under ``interp_cache``; no pickle is read or written.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import safe_open
from torch import Tensor

from interp.cache import Contents, is_fresh, view_of
from interp.config import Config
from interp.errors import InvalidConfig, InvalidInput, OutOfResources, reason, shorten
from interp.io import (
    DAMAGED,
    STORED,
    as_object,
    build,
    is_file,
    parse_json,
    read_header,
    save_tensors,
    verify_checksum,
    write_whole,
)
from interp.model import Context
from interp.points import Place, Point

HEADER = "interp_cache"
VERSION = 1
_LABELS = {point.label: point for point in Point}
_NOT_SAVED = ("encoder_output", "kv_cache", "_shared")
_FIELDS = {"encoder_real": "memory_real", "n_later": "ahead"}
"""Fields of a context that have a different name in files of this version."""


def write_cache(contents: Contents, path: Path) -> None:
    """Write the file atomically.

    Raises:
        InvalidInput: there is no such folder, or the path is a folder.
        OutOfResources: the file can't be written.
    """
    tensors = _NamedTensors()
    header = {
        "version": VERSION,
        "config": contents.config.to_dict(),
        "weights": contents.weights,
        "dtype": None if contents.dtype is None else _name_of(contents.dtype),
        "asked": [place.to_json() for place in contents.recorded],
        "kept": _places_to_json(contents.stored, tensors),
        "gradients": _places_to_json(contents.gradients, tensors),
        "contexts": [
            [stack, _context_to_json(context, tensors)]
            for stack, context in contents.contexts.items()
        ],
    }
    metadata = {HEADER: json.dumps(header)}
    try:
        _check_path(path)
        write_whole(path, lambda aside: save_tensors(tensors.named, aside, metadata))
    except OSError as error:
        raise OutOfResources(f"{path} can't be written: {error}.") from error


def _check_path(path: Path) -> None:
    """Make sure that a file can be written at ``path``."""
    if not path.parent.is_dir():
        raise InvalidInput(f"There is no folder {str(path.parent)[:200]!r}; make it first.")
    if path.is_dir():
        raise InvalidInput(f"{str(path)[:200]!r} is a folder; give the name of a file in it.")


def read_contents(path: Path, device: torch.device) -> Contents:
    """Read a file that :func:`write_cache` wrote, with its tensors on ``device``.

    Raises:
        InvalidInput: there is no such file, or it is damaged, of another kind or another version.
    """
    if not is_file(path):
        raise InvalidInput(f"{path} is not a file; cache.save(path) writes one.")
    try:
        file_header = read_header(path)
        verify_checksum(path, file_header)
        header = _header(path, file_header.metadata)
        with safe_open(path, framework="pt", device=str(device)) as file:
            return _contents(header, file.get_tensor)
    except InvalidConfig as error:
        raise InvalidInput(
            f"{path} is damaged: its header is not what cache.save(path) writes: {error}"
        ) from error
    except InvalidInput:
        raise
    except DAMAGED as error:
        raise InvalidInput(f"{path} is not a valid safetensors file: {reason(error)}.") from error


class _NamedTensors:
    """Tensors named by numbers; a tensor that occurs twice has one name."""

    def __init__(self) -> None:
        self.named: dict[str, Tensor] = {}
        self._names: dict[object, str] = {}

    def name(self, tensor: Tensor) -> str:
        view = view_of(tensor)
        if view not in self._names:
            self._names[view] = name = str(len(self.named))
            whole = tensor.is_contiguous() and is_fresh(tensor, ())
            copied = tensor if whole else tensor.clone(memory_format=torch.contiguous_format)
            self.named[name] = copied
        return self._names[view]


_PlaceRow = tuple[str, int | None, str | None, str | None]
_TensorName = tuple[Literal["tensor"], str]


@dataclass(frozen=True)
class _SavedContext:
    """The fields of a :class:`Context` in a file of this version."""

    positions: _TensorName
    offset: int = 0
    real: _TensorName | None = None
    memory_real: _TensorName | None = None
    ahead: int = 0


@dataclass(frozen=True)
class _Header:
    """The header of a file of this version."""

    version: int
    config: dict[str, Any]
    weights: str
    dtype: str | None
    asked: list[_PlaceRow]
    kept: list[tuple[_PlaceRow, str]]
    gradients: list[tuple[_PlaceRow, str]]
    contexts: list[tuple[str | None, _SavedContext]]


def _header(path: Path, metadata: Mapping[str, str]) -> _Header:
    if HEADER not in metadata:
        raise InvalidInput(f"{path} holds tensors, but is not a cache that cache.save(path) wrote.")
    try:
        values = as_object(parse_json(metadata[HEADER]), "header")
    except ValueError as error:
        raise InvalidConfig(reason(error)) from error
    version = values.get("version", VERSION)
    if version != VERSION:
        raise InvalidInput(
            f"{path} is a cache of format {shorten(version)}; this version of interp reads format "
            f"{VERSION}. Update interp, or save the cache again."
        )
    return build(_Header, values, "header")


def _contents(header: _Header, tensor: Callable[[str], Tensor]) -> Contents:
    read: dict[str, Tensor] = {}

    def once(name: str) -> Tensor:
        if name not in read:
            # Copied, so that it is aligned and does not depend on the file.
            read[name] = tensor(name).clone()
        return read[name]

    def places(listed: list[tuple[_PlaceRow, str]]) -> dict[Place, Tensor]:
        return {_place(place): once(name) for place, name in listed}

    def columns(saved: _TensorName, dtype: torch.dtype, rows: int | None = None) -> Tensor:
        values = once(saved[1])
        if values.dtype != dtype or values.ndim != 2 or rows not in (None, len(values)):  # noqa: PLR2004
            raise InvalidConfig("positions and padding should be [batch column].")
        return values

    def context(saved: _SavedContext) -> Context:
        positions = columns(saved.positions, torch.int64)
        real, source = (
            None if mask is None else columns(mask, torch.bool, len(positions))
            for mask in (saved.real, saved.memory_real)
        )
        return Context(positions, saved.offset, real=real, encoder_real=source, n_later=saved.ahead)

    return Contents(
        config=Config.from_dict(header.config),
        weights=header.weights,
        recorded=[_place(place) for place in header.asked],
        stored=places(header.kept),
        gradients=places(header.gradients),
        contexts={stack: context(saved) for stack, saved in header.contexts},
        dtype=None if header.dtype is None else _dtype(header.dtype),
    )


def _places_to_json(tensors: Mapping[Place, Tensor], named: _NamedTensors) -> list[Any]:
    return [[place.to_json(), named.name(tensor)] for place, tensor in tensors.items()]


def _place(row: _PlaceRow) -> Place:
    label, layer, norm, stack = row
    if label not in _LABELS:
        raise InvalidConfig(f"there is no point {shorten(label)}.")
    return Place(_LABELS[label], layer, norm, stack)


def _context_to_json(context: Context, named: _NamedTensors) -> dict[str, Any]:
    """The fields of a context: a tensor as ``["tensor", name]``, any other value unchanged."""
    values = {
        field.name: getattr(context, field.name)
        for field in fields(context)
        if field.name not in _NOT_SAVED
    }
    return {
        _FIELDS.get(name, name): ["tensor", named.name(value)]
        if isinstance(value, Tensor)
        else value
        for name, value in values.items()
    }


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype(name: str) -> torch.dtype:
    dtypes = {_name_of(dtype): dtype for dtype in STORED.values() if dtype.is_floating_point}
    if name not in dtypes:
        raise InvalidConfig(f"dtype={shorten(name)} must be one of {', '.join(dtypes)}.")
    return dtypes[name]
