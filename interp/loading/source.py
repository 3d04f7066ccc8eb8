"""Sources of weights: the safetensors files of a folder, or the ``state_dict`` of a live model.

Files are checked by their headers before any tensor is read or allocated: duplicate names, offsets
beyond the end of the file and missing shards are found first.
"""

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from interp.errors import ModelLoadError
from interp.saving import COMPUTE_DTYPE

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_HEADER_BYTES = 100 * 2**20
MALFORMED = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Exceptions of parsing JSON that is damaged, or of reading entries that it lacks."""
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
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
        folder: holds ``model.safetensors``, or shards and ``model.safetensors.index.json``.
        single: a file to read instead.

    Attributes:
        compute_dtype: the dtype of the model that was saved, where the file records it.

    Raises:
        ModelLoadError: a file is missing, truncated or damaged, or a name occurs twice.
    """

    def __init__(self, folder: Path, single: Path | None = None) -> None:
        self._files: dict[str, Path] = {}
        self._entries: dict[str, dict[str, Any]] = {}
        self._open: dict[Path, Any] = {}
        indexed = _read_index(folder) if single is None else {}
        unsharded = folder / WEIGHTS if single is None else single
        for path in dict.fromkeys(indexed.values()) if indexed else [unsharded]:
            for key, entry in _read_header(path).items():
                if key in self._entries:
                    raise ModelLoadError(
                        f"{folder}: the weight {key} is in both {self._files[key].name} and "
                        f"{path.name}; remove one of them."
                    )
                self._entries[key], self._files[key] = entry, path
        self.compute_dtype = None if indexed else _compute_dtype(unsharded)
        for key, path in indexed.items():
            if self._files.get(key) != path:
                raise ModelLoadError(
                    f"{folder}: {INDEX} places {key} in {path.name}, which lacks it; fetch or "
                    "write the files again."
                )

    def keys(self) -> list[str]:
        """The names of all tensors."""
        return list(self._entries)

    def shape(self, key: str) -> tuple[int, ...]:
        """The shape of a tensor, from the header."""
        return tuple(self._entries[key]["shape"])

    def dtype(self, key: str) -> torch.dtype | None:
        """The dtype of a tensor; ``None`` if no model computes in it."""
        return DTYPES.get(self._entries[key]["dtype"])

    def read(self, key: str) -> Tensor:
        """The tensor, memory-mapped from its file (copy on write)."""
        path = self._files[key]
        try:
            return self._opened(path).get_tensor(key)
        except (SafetensorError, OSError, RuntimeError, ValueError) as error:
            raise ModelLoadError(f"{path}: {key} can't be read: {error}.") from error

    def _opened(self, path: Path) -> Any:  # noqa: ANN401 - safetensors has no public type for it
        if path not in self._open:
            self._open[path] = safe_open(str(path), framework="pt")
        return self._open[path]


class StateDictSource:
    """The weights of a model in memory.

    Args:
        weights: a ``state_dict()``.

    Raises:
        ModelLoadError: a tensor is on the meta device, so that it has no data.
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
    """The file of each weight, by the index; empty if ``model.safetensors`` is a single file.

    Raises:
        ModelLoadError: the index is damaged, or names files outside the folder.
    """
    index = folder / INDEX
    if (folder / WEIGHTS).is_file() or not index.is_file():
        return {}
    try:
        if index.stat().st_size > MAX_HEADER_BYTES:
            raise ValueError(f"it is larger than {MAX_HEADER_BYTES} bytes")
        content = json.loads(index.read_text(encoding="utf-8"), object_pairs_hook=_unique)
        pairs = [(str(key), str(name)) for key, name in content["weight_map"].items()]
    except MALFORMED as error:
        raise ModelLoadError(f"{index} is not a valid index of weights: {error}.") from error
    for _, name in pairs:
        if Path(name).name != name or name in ("", ".", "..") or "\\" in name:
            raise ModelLoadError(
                f"{index} names the file {name!r}; shards must be plain names inside the model's "
                "folder."
            )
    return {key: folder / name for key, name in pairs}


def _read_header(path: Path) -> dict[str, dict[str, Any]]:
    """The entries of a safetensors header: dtype, shape and offsets of each tensor, checked.

    Raises:
        ModelLoadError: the file is missing, or its header is not valid for its size.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= min(size - 8, MAX_HEADER_BYTES):
                raise ValueError(f"a header of {length} bytes in a file of {size}")
            entries = json.loads(file.read(length), object_pairs_hook=_unique)
        entries.pop("__metadata__", None)
        for key, entry in entries.items():
            n_bytes = size - 8 - length
            defect = _defect(entry, n_bytes) if isinstance(entry, dict) else "has no description"
            if defect:
                raise ValueError(f"{key} {defect}")
    except FileNotFoundError as error:
        raise ModelLoadError(
            f"{path} is missing; a model's folder needs its weights as safetensors."
        ) from error
    except MALFORMED as error:
        raise ModelLoadError(f"{path} is not a valid safetensors file: {error}.") from error
    return entries


def _compute_dtype(path: Path) -> torch.dtype | None:
    """The dtype that the file's metadata records for the saved model, if it does."""
    try:
        with safe_open(str(path), framework="pt") as file:
            name = str((file.metadata() or {}).get(COMPUTE_DTYPE))
    except SafetensorError as error:
        raise ModelLoadError(f"{path} is not a valid safetensors file: {error}.") from error
    return {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES.values()}.get(name)


def _defect(entry: Mapping[str, Any], n_bytes: int) -> str | None:
    """What is wrong with one entry of a header, in a file with ``n_bytes`` of data."""
    (start, end), shape = entry["data_offsets"], entry["shape"]
    if not 0 <= start <= end <= n_bytes:
        return "reaches beyond the end of the file, which is truncated"
    if any(not isinstance(size, int) or size < 0 for size in shape):
        return f"has the invalid shape {shape}"
    dtype = DTYPES.get(entry["dtype"])
    if dtype is not None and prod(shape) * dtype.itemsize != end - start:
        return f"has {end - start} bytes; its shape {shape} needs {prod(shape) * dtype.itemsize}"
    return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; duplicate names raise a ``ValueError``."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{duplicate!r} occurs twice")
    return found
