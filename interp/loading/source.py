"""What do weights come from? Safetensors files, checked by their headers alone, or a live model.

Nothing is read or allocated before the headers are known to be sound: names that stand twice,
tensors that reach beyond the file, parts that are missing are found first.
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

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
COMPUTES_IN = "computes_in"
"""What a file of our own says of the type that its model was saved from."""
MOST_HEADER = 100 * 2**20
UNSOUND = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading JSON, and looking into it, raises where it is damaged."""
TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
"""The types of weights that can be computed with."""


@runtime_checkable
class Source(Protocol):
    """Tensors by name."""

    def keys(self) -> list[str]:
        """The names."""
        ...

    def shape(self, key: str) -> tuple[int, ...]:
        """How large one is."""
        ...

    def dtype(self, key: str) -> torch.dtype | None:
        """Its type; ``None`` if it is none that a model computes in."""
        ...

    def read(self, key: str) -> Tensor:
        """The tensor itself."""
        ...


class Files:
    """The safetensors files of a folder.

    Args:
        folder: holds ``model.safetensors``, or its parts and ``model.safetensors.index.json``.
        single: the one file to read, if it is another.

    Attributes:
        computes_in: the type that our own file says its model was saved from.

    Raises:
        ModelLoadError: a file is missing, cut short or damaged, or a name stands twice.
    """

    def __init__(self, folder: Path, single: Path | None = None) -> None:
        self._where: dict[str, Path] = {}
        self._told: dict[str, dict[str, Any]] = {}
        self._open: dict[Path, Any] = {}
        expected = _expected(folder) if single is None else {}
        alone = folder / WEIGHTS if single is None else single
        for path in dict.fromkeys(expected.values()) if expected else [alone]:
            for key, told in _header(path).items():
                if key in self._told:
                    raise ModelLoadError(
                        f"{folder}: the weight {key} stands in {self._where[key].name} and in "
                        f"{path.name}."
                    )
                self._told[key], self._where[key] = told, path
        self.computes_in = None if expected else _computes_in(alone)
        for key, path in expected.items():
            if self._where.get(key) != path:
                raise ModelLoadError(
                    f"{folder}: {INDEX} promises {key} in {path.name}; it lacks it."
                )

    def keys(self) -> list[str]:
        """The names."""
        return list(self._told)

    def shape(self, key: str) -> tuple[int, ...]:
        """How large one is, as its header says."""
        return tuple(self._told[key]["shape"])

    def dtype(self, key: str) -> torch.dtype | None:
        """Its type; ``None`` if it is none that a model computes in."""
        return TYPES.get(self._told[key]["dtype"])

    def read(self, key: str) -> Tensor:
        """The tensor, as the file has it; its memory is the file's until it is written to."""
        path = self._where[key]
        try:
            return self._opened(path).get_tensor(key)
        except (SafetensorError, OSError, RuntimeError, ValueError) as error:
            raise ModelLoadError(f"{path}: {key} can't be read: {error}.") from error

    def _opened(self, path: Path) -> Any:  # noqa: ANN401 - the library's own
        if path not in self._open:
            self._open[path] = safe_open(str(path), framework="pt")
        return self._open[path]


class Live:
    """The weights of a model in memory.

    Args:
        weights: by name, as ``state_dict()`` gives them.

    Raises:
        ModelLoadError: one is on the meta device: it has a shape and no content.
    """

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._weights = dict(weights)
        empty = [key for key, weight in self._weights.items() if weight.is_meta]
        if empty:
            raise ModelLoadError(
                f"{empty[0]} is on the meta device and holds nothing; load the model's weights "
                "before giving it here (no device_map, no low-memory initialisation)."
            )

    def keys(self) -> list[str]:
        """The names."""
        return list(self._weights)

    def shape(self, key: str) -> tuple[int, ...]:
        """How large one is."""
        return tuple(self._weights[key].shape)

    def dtype(self, key: str) -> torch.dtype | None:
        """Its type; ``None`` if it is none that a model computes in."""
        dtype = self._weights[key].dtype
        return dtype if dtype in TYPES.values() else None

    def read(self, key: str) -> Tensor:
        """A copy: what is done to one model is not done to the other."""
        return self._weights[key].detach().clone()


def _expected(folder: Path) -> dict[str, Path]:
    """Which file each name is promised in; nothing if there is a single file.

    Raises:
        ModelLoadError: an index that is damaged, or that names files outside of the folder.
    """
    index = folder / INDEX
    if (folder / WEIGHTS).is_file() or not index.is_file():
        return {}
    try:
        if index.stat().st_size > MOST_HEADER:
            raise ValueError("it is larger than any")
        promised = json.loads(index.read_text(encoding="utf-8"), object_pairs_hook=_unique)
        files = promised["weight_map"]
        pairs = [(str(key), str(name)) for key, name in files.items()]
    except UNSOUND as error:
        raise ModelLoadError(f"{index} is no sound index of weights: {error}.") from error
    for _, name in pairs:
        if Path(name).name != name or name in ("", ".", "..") or "\\" in name:
            raise ModelLoadError(
                f"{index} names the file {name!r}; parts of a model are plain names inside its "
                "folder."
            )
    return {key: folder / name for key, name in pairs}


def _header(path: Path) -> dict[str, dict[str, Any]]:
    """What a file says that it holds, each tensor inside of it.

    Raises:
        ModelLoadError: the file is missing, or says what can't be.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= min(size - 8, MOST_HEADER):
                raise ValueError(f"a header of {length} bytes in a file of {size}")
            told = json.loads(file.read(length), object_pairs_hook=_unique)
        told.pop("__metadata__", None)
        for key, one in told.items():
            room = size - 8 - length
            wrong = _wrong_with(one, room) if isinstance(one, dict) else "is not described"
            if wrong:
                raise ValueError(f"{key} {wrong}")
    except FileNotFoundError as error:
        raise ModelLoadError(f"{path} is missing: the folder lacks these weights.") from error
    except UNSOUND as error:
        raise ModelLoadError(f"{path} is not a sound safetensors file: {error}.") from error
    return told


def _computes_in(path: Path) -> torch.dtype | None:
    """The type that a file of our own says its model computes in; ``None`` if it says nothing."""
    try:
        with safe_open(str(path), framework="pt") as file:
            told = str((file.metadata() or {}).get(COMPUTES_IN))
    except SafetensorError as error:
        raise ModelLoadError(f"{path} is not a sound safetensors file: {error}.") from error
    return {str(dtype).removeprefix("torch."): dtype for dtype in TYPES.values()}.get(told)


def _wrong_with(told: Mapping[str, Any], room: int) -> str | None:
    """What can't be about the place of one tensor among ``room`` bytes."""
    (first, last), shape = told["data_offsets"], told["shape"]
    if not 0 <= first <= last <= room:
        return "reaches beyond the end: the file is cut short"
    if any(not isinstance(n, int) or n < 0 for n in shape):
        return f"has the shape {shape}"
    dtype = TYPES.get(told["dtype"])
    if dtype is not None and prod(shape) * dtype.itemsize != last - first:
        return f"has {last - first} bytes, which is not what its shape {shape} takes"
    return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names each stand once."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} stands twice")
    return found
