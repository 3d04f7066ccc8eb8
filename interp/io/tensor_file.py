"""safetensors files, whose headers are checked before a tensor is read, and whose data by checksum.

    8 bytes    length of the header, little-endian
    header     JSON: dtype, shape and offsets of each tensor; texts under ``__metadata__``
    data       the tensors, without gaps

Files written here have their own SHA-256 in the metadata, computed with 64 zeros in its place.
Files without a checksum are read without this check. The same tensors and metadata always give the
same bytes, which the library's writer does not guarantee.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError
from torch import Tensor

from interp.errors import shorten
from interp.io.files import UNREADABLE, open_regular, size_of
from interp.io.json_text import parse_json
from interp.io.schema import as_object, value_of
from interp.io.tensor_data import tensor_bytes

MAX_HEADER_BYTES = 100 * 2**20
MAX_AXES = 64
MAX_SIZE = 2**63
METADATA = "__metadata__"
CHECKSUM = "sha256"
"""Metadata entry: the SHA-256 of the file."""
NO_CHECKSUM = "0" * 64
CHUNK = 2**20
STORED = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""The dtypes that are written, by their names in a header."""
_NAMES = {dtype: name for name, dtype in STORED.items()}
DAMAGED = (SafetensorError, RuntimeError, *UNREADABLE)
"""Errors raised when a damaged or missing file is read."""


@dataclass(frozen=True)
class Entry:
    """One tensor in a header.

    Attributes:
        dtype: name of its dtype in safetensors.
        shape: its shape.
    """

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Header:
    """The header of a file.

    Attributes:
        entries: the tensors, by name.
        metadata: texts, by name.
    """

    entries: dict[str, Entry]
    metadata: dict[str, str]


def read_header(path: Path) -> Header:
    """The header of a file, with all entries checked to be within the file.

    Raises:
        OSError: there is no such file, or no permission.
        ValueError: it is not a regular file, or its header is not valid for its size.
    """
    with open_regular(path) as file:
        n_bytes = size_of(file)
        text = _header_bytes(file)
    fields = as_object(parse_json(text.decode()), "the header")
    metadata = value_of(dict[str, str], fields.pop(METADATA, {}), METADATA)
    data = n_bytes - 8 - len(text)
    return Header({key: _entry(key, fields[key], data) for key in fields}, metadata)


def verify_checksum(path: Path, header: Header) -> None:
    """Compare the file with the SHA-256 in its metadata, if there is one.

    Raises:
        OSError: the file can't be read.
        ValueError: the file was changed after it was written.
    """
    expected = header.metadata.get(CHECKSUM)
    if expected is None:
        return
    with open_regular(path) as file:
        text = _header_bytes(file)
        digest = sha256(len(text).to_bytes(8, "little"))
        digest.update(text.replace(_field(expected), _field(NO_CHECKSUM)))
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != expected:
        raise ValueError(
            f"its SHA-256 is not the one that it was written with ({shorten(expected)}); the file "
            "was damaged or changed: fetch or write it again"
        )


def save_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str]) -> None:
    """Write tensors and metadata, with the checksum.

    Args:
        tensors: tensors by name, on any device.
        path: the file, which is overwritten.
        metadata: texts by name.

    Raises:
        OSError: the file can't be written.
    """
    # Tensors with larger elements come first, which keeps all of them aligned.
    names = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    fields: dict[str, Any] = {METADATA: {CHECKSUM: NO_CHECKSUM, **metadata}}
    end = 0
    for name in names:
        tensor, start = tensors[name], end
        end += tensor.nbytes
        dtype, shape = _NAMES[tensor.dtype], tuple(tensor.shape)
        fields[name] = {"dtype": dtype, "shape": shape, "data_offsets": (start, end)}
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = sha256()
    with path.open("wb") as file:
        for part in (len(text).to_bytes(8, "little"), text):
            file.write(part)
            digest.update(part)
        for name in names:
            content = tensor_bytes(tensors[name])
            file.write(content)
            digest.update(content)
        file.seek(8 + text.index(_field(NO_CHECKSUM)))
        file.write(_field(digest.hexdigest()))


def _header_bytes(file: BinaryIO) -> bytes:
    """The header's JSON; the file position is then at the data."""
    size = size_of(file)
    length = int.from_bytes(file.read(8), "little")
    if not 0 < length <= min(size - 8, MAX_HEADER_BYTES):
        raise ValueError(f"a header of {length} bytes in a file of {size}")
    return file.read(length)


def _entry(key: str, fields: object, n_bytes: int) -> Entry:
    """One checked entry of a file with ``n_bytes`` of data."""
    match fields:
        case {"dtype": str(name), "shape": list(shape), "data_offsets": [int(start), int(end)]}:
            pass
        case _:
            raise ValueError(
                f"{shorten(key)} should have dtype, shape and data_offsets, got {shorten(fields)}"
            )
    if not 0 <= start <= end <= n_bytes:
        raise ValueError(f"{shorten(key)} reaches beyond the end of the file, which is truncated")
    if len(shape) > MAX_AXES or not all(map(_is_size, shape)):
        raise ValueError(f"{shorten(key)} has the invalid shape {shorten(shape)}")
    dtype = STORED.get(name)
    if dtype is not None and prod(shape) * dtype.itemsize != end - start:
        raise ValueError(f"{shorten(key)} has {end - start} bytes; its shape is {shorten(shape)}")
    return Entry(name, tuple(shape))


def _is_size(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and 0 <= size < MAX_SIZE


def _field(checksum: str) -> bytes:
    """The checksum as it is written in a header; quotes within other texts are escaped."""
    return f'"{CHECKSUM}":"{checksum}"'.encode()
