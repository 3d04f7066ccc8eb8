"""Sources of weights: safetensors files or pickles of a folder, the ``state_dict`` of a live model.

safetensors files are checked by their headers before any tensor is read or allocated: duplicate
names, offsets beyond the end of the file and missing shards are found first. A file's checksum, if
it has one, is compared before its first tensor is read.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from safetensors import safe_open
from torch import Tensor

from interp.errors import ModelLoadError, reason, shorten
from interp.io import DAMAGED, STORED, UNREADABLE, Entry, Header, read_header, verify_checksum
from interp.loading.pickle_file import check_weights, unpickled
from interp.loading.weight_files import (
    PICKLE,
    SAFETENSORS,
    WeightFiles,
    file_name,
    find_weights,
    is_stored,
    variants,
)
from interp.saved import COMPUTE_DTYPE

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
        variant: the part of the files' names between ``model`` and ``safetensors``, such as
            ``"fp16"``.

    Attributes:
        compute_dtype: the dtype of the model that was saved, where the file records it.

    Raises:
        ModelLoadError: a file is missing, truncated or damaged, or a name occurs twice.
    """

    def __init__(
        self, folder: Path, single: Path | None = None, variant: str | None = None
    ) -> None:
        if single is None:
            files = find_weights(folder, SAFETENSORS, variant)
        else:
            files = WeightFiles([single])
        self._headers = {path: _read_header(path) for path in files.paths}
        self._entries: dict[str, Entry] = {}
        for header in self._headers.values():
            self._entries |= header.entries
        self._files = files.place({path: self._headers[path].entries for path in files.paths})
        self._open: dict[Path, Any] = {}
        whole = files.index is None
        self.compute_dtype = _compute_dtype(self._headers[files.paths[0]]) if whole else None

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


class PickleSource(StateDictSource):
    """The weights of a folder that ``torch.save`` wrote: ``pytorch_model.bin``, or its shards.

    Args:
        folder: the folder.
        variant: the part of the files' names between ``pytorch_model`` and ``bin``.
        allow_pickle: whether pickles may be read (only their weights are read).

    Attributes:
        compute_dtype: ``None``; pickles do not record it.

    Raises:
        ModelLoadError: ``allow_pickle`` is not set; a file is missing or damaged, or holds anything
            but tensors; a name occurs twice.
    """

    compute_dtype = None

    def __init__(
        self, folder: Path, variant: str | None = None, *, allow_pickle: bool = False
    ) -> None:
        files = find_weights(folder, PICKLE, variant)
        weights = {path: _state_dict(path, allow_pickle=allow_pickle) for path in files.paths}
        files.place(weights)
        super().__init__({key: w for part in weights.values() for key, w in part.items()})
        self._n_sharing = Counter(map(_address, self._weights.values()))

    def read(self, key: str) -> Tensor:
        """The tensor, memory-mapped (copy on write); copied if it shares memory with others."""
        weight = self._weights[key].detach()
        is_shared = self._n_sharing[_address(weight)] > 1
        return weight.clone() if is_shared else weight.contiguous()


def open_weights(
    folder: Path, variant: str | None = None, *, allow_pickle: bool = False
) -> "SafetensorsSource | PickleSource":
    """The weights of a folder: safetensors if it has them, else pickles.

    Args:
        folder: the folder.
        variant: the variant of the weights, such as ``"fp16"``; ``None`` means those without one.
        allow_pickle: whether pickles may be read (only their weights are read).

    Raises:
        ModelLoadError: there are no such weights, or a file is missing or damaged.
        InvalidInput: the variant is not a part of a file name.
    """
    if is_stored(folder, SAFETENSORS, variant):
        return SafetensorsSource(folder, variant=variant)
    if is_stored(folder, PICKLE, variant):
        return PickleSource(folder, variant, allow_pickle=allow_pickle)
    path = folder / file_name(SAFETENSORS, variant)
    others = [repr(name) for name in variants(folder)]
    others += ["None"] * (is_stored(folder, SAFETENSORS) or is_stored(folder, PICKLE))
    advice = f" The folder has other weights: variant={' or '.join(others)}." if others else ""
    raise ModelLoadError(
        f"{path} is missing; a model's folder needs its weights as safetensors.{advice}"
    )


def _address(weight: Tensor) -> int:
    """Identifies the memory that a tensor is a view of."""
    return weight.untyped_storage().data_ptr()


def _state_dict(path: Path, *, allow_pickle: bool) -> dict[str, Tensor]:
    """The tensors of a pickle by name, all of them checked to be in the file."""
    content = unpickled(path, path.parent, allow_pickle=allow_pickle)
    entries = content.items() if isinstance(content, Mapping) else [(None, content)]
    weights: dict[str, Tensor] = {}
    for name, weight in entries:
        if not isinstance(name, str) or not isinstance(weight, Tensor):
            raise ModelLoadError(
                f"{path} should map names to tensors; it has {shorten(name)}: {shorten(weight)}."
            )
        weights[name] = weight
    check_weights(path, weights)
    return weights


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
