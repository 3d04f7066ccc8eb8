"""Sources of weights: the safetensors files of a folder, or the ``state_dict`` of a live model.

Files are checked by their headers before any tensor is read or allocated: duplicate names, offsets
beyond the end of the file and missing shards are found first. A file's checksum, if it has one, is
compared before its first tensor is read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from safetensors import safe_open
from torch import Tensor

from interp.errors import ModelLoadError, reason, shorten
from interp.files import UNREADABLE
from interp.json_text import read_json
from interp.saving import COMPUTE_DTYPE
from interp.schema import as_object, value_of
from interp.tensor_file import (
    DAMAGED,
    MAX_HEADER_BYTES,
    STORED,
    Entry,
    Header,
    read_header,
    verify_checksum,
)

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
DTYPES = {name: STORED[name] for name in ("F64", "F32", "F16", "BF16")}
"""The dtypes that a model can compute in, by their names in safetensors."""


@runtime_checkable
class Source(Protocol):
    """Tensors by name."""

    def keys(self) -> list[str]:
        """The names of all tensors."""
        ...

    def shape(self, key: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        ...

    def dtype(self, key: str) -> torch.dtype | None:
        """The dtype of a tensor; ``None`` if no model computes in it."""
        ...

    def read(self, key: str) -> Tensor:
        """The tensor."""
        ...


class SafetensorsSource:
    """The safetensors files of a folder.

    Args:
        folder: a folder with ``model.safetensors``, or shards and ``model.safetensors.index.json``.
        single: a file to read instead.

    Attributes:
        compute_dtype: the dtype of the model that was saved, where the file records it.

    Raises:
        ModelLoadError: a file is missing, truncated or damaged, or a name occurs twice.
    """

    def __init__(self, folder: Path, single: Path | None = None) -> None:
        self._files: dict[str, Path] = {}
        self._entries: dict[str, Entry] = {}
        self._headers: dict[Path, Header] = {}
        self._open: dict[Path, Any] = {}
        indexed = _read_index(folder) if single is None else {}
        unsharded = folder / WEIGHTS if single is None else single
        for path in dict.fromkeys(indexed.values()) if indexed else [unsharded]:
            self._headers[path] = _read_header(path)
            for key, entry in self._headers[path].entries.items():
                if key in self._entries:
                    raise ModelLoadError(
                        f"{folder}: the weight {shorten(key)} is in both "
                        f"{self._files[key].name} and {path.name}; remove one of them."
                    )
                self._entries[key], self._files[key] = entry, path
        self.compute_dtype = None if indexed else _compute_dtype(self._headers[unsharded])
        for key, path in indexed.items():
            if self._files.get(key) != path:
                raise ModelLoadError(
                    f"{folder}: {INDEX} places {shorten(key)} in {path.name}, which lacks it; "
                    "fetch or write the files again."
                )

    def keys(self) -> list[str]:
        """The names of all tensors."""
        return list(self._entries)

    def shape(self, key: str) -> tuple[int, ...]:
        """The shape of a tensor, from the header."""
        return self._entries[key].shape

    def dtype(self, key: str) -> torch.dtype | None:
        """The dtype of a tensor; ``None`` if no model computes in it."""
        return DTYPES.get(self._entries[key].dtype)

    def read(self, key: str) -> Tensor:
        """The tensor, memory-mapped from its file (copy on write)."""
        path = self._files[key]
        try:
            return self._opened(path).get_tensor(key)
        except DAMAGED as error:
            raise ModelLoadError(
                f"{path}: {shorten(key)} can't be read: {reason(error)}."
            ) from error

    def _opened(self, path: Path) -> Any:  # noqa: ANN401 - safetensors has no public type for it
        if path not in self._open:
            verify_checksum(path, self._headers[path])
            self._open[path] = safe_open(str(path), framework="pt")
        return self._open[path]


class StateDictSource:
    """The weights of a model in memory.

    Args:
        weights: a ``state_dict()``.

    Raises:
        ModelLoadError: a tensor is on the meta device, and so has no data.
    """

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._weights = dict(weights)
        empty = [key for key, weight in self._weights.items() if weight.is_meta]
        if empty:
            raise ModelLoadError(
                f"{empty[0]} is on the meta device and has no data; load the model's weights first "
                "(without device_map= and low_cpu_mem_usage=)."
            )

    def keys(self) -> list[str]:
        """The names of all tensors."""
        return list(self._weights)

    def shape(self, key: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return tuple(self._weights[key].shape)

    def dtype(self, key: str) -> torch.dtype | None:
        """The dtype of a tensor; ``None`` if no model computes in it."""
        dtype = self._weights[key].dtype
        return dtype if dtype in DTYPES.values() else None

    def read(self, key: str) -> Tensor:
        """A copy of the tensor, so that the two models share no memory."""
        return self._weights[key].detach().clone()


def _read_index(folder: Path) -> dict[str, Path]:
    """The file of each weight according to the index; empty if there is a single file.

    Raises:
        ModelLoadError: the index is damaged, or names files outside the folder.
    """
    index = folder / INDEX
    if (folder / WEIGHTS).is_file() or not index.is_file():
        return {}
    try:
        content = as_object(read_json(index, MAX_HEADER_BYTES), "the index")
        names = value_of(dict[str, str], content.get("weight_map"), "weight_map")
    except UNREADABLE as error:
        raise ModelLoadError(
            f"{index} is not a valid index of weights: {reason(error)}."
        ) from error
    for name in dict.fromkeys(names.values()):
        if Path(name).name != name or name in ("", ".", "..") or "\\" in name:
            raise ModelLoadError(
                f"{index} names the file {shorten(name)}; shards must be plain names inside the "
                "model's folder."
            )
    paths = {name: folder / name for name in dict.fromkeys(names.values())}
    return {key: paths[name] for key, name in names.items()}


def _read_header(path: Path) -> Header:
    """The header of a file of weights.

    Raises:
        ModelLoadError: the file is missing, or its header is not valid for its size.
    """
    try:
        return read_header(path)
    except FileNotFoundError as error:
        raise ModelLoadError(
            f"{path} is missing; a model's folder needs its weights as safetensors."
        ) from error
    except UNREADABLE as error:
        raise ModelLoadError(f"{path} is not a valid safetensors file: {reason(error)}.") from error


def _compute_dtype(header: Header) -> torch.dtype | None:
    """The dtype that the file's metadata records for the saved model, if it does."""
    named = {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES.values()}
    return named.get(header.metadata.get(COMPUTE_DTYPE, ""))
