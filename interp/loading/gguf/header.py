"""GGUF files of llama.cpp: metadata and the places of the tensors, checked before any is read.

    "GGUF"       then the version, the number of tensors and that of metadata entries
    metadata     name, type and value of each entry
    tensors      name, axes (fastest first), type and offset of each tensor
    data         the tensors, aligned

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from interp.errors import shorten
from interp.io import open_regular, size_of

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_GGUF_HEADER_BYTES = 2**28
MAX_GGUF_AXES = 4
MAX_SIZE = 2**63
ALIGNMENT = 32
"""Alignment of the tensors, unless ``general.alignment`` is another one."""
TEXT, ARRAY = 8, 9
NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""Formats of the numbers, by their types."""

GgufValue = bool | int | float | str | list[bool] | list[int] | list[float] | list[str]


@dataclass(frozen=True)
class GgufEntry:
    """One tensor of a GGUF file.

    Attributes:
        shape: its shape, slowest axis first.
        type: the number of its type in ggml.
        offset: the position of its first byte in the file.
    """

    shape: tuple[int, ...]
    type: int
    offset: int


@dataclass(frozen=True)
class GgufHeader:
    """All of a GGUF file but the data.

    Attributes:
        metadata: the entries by name; a float32 is the shortest decimal number that rounds to it.
        tensors: the tensors by name.
        n_bytes: the size of the file.
    """

    metadata: dict[str, GgufValue]
    tensors: dict[str, GgufEntry]
    n_bytes: int


def read_gguf_header(path: Path) -> GgufHeader:
    """The header of a GGUF file.

    Raises:
        OSError: there is no such file, or no permission.
        ValueError: it is not a GGUF file, is truncated, or its header contradicts itself.
    """
    with open_regular(path) as file:
        n_bytes = size_of(file)
        if file.read(len(MAGIC)) != MAGIC:
            raise ValueError("it does not begin with GGUF")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _header(_Reader(data, min(n_bytes, MAX_GGUF_HEADER_BYTES)), n_bytes)


class _Reader:
    """Reads one value after the other, and none beyond ``end``."""

    def __init__(self, data: mmap.mmap, end: int) -> None:
        self._data, self._end, self.position = data, end, len(MAGIC)

    def take(self, n_bytes: int) -> bytes:
        start, self.position = self.position, self.position + n_bytes
        if self.position > self._end:
            raise ValueError(f"its header reaches beyond {self._end} bytes; the file is truncated")
        return self._data[start : self.position]

    def number(self, form: str) -> int | float | bool:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(form)))[0]

    def integer(self, form: str) -> int:
        return int(self.number(form))

    def text(self) -> str:
        return self.take(self.integer("Q")).decode()

    def value(self, kind: int) -> GgufValue:
        if kind == TEXT:
            return self.text()
        if kind in NUMBERS:
            number = self.number(NUMBERS[kind])
            return shortest(number) if isinstance(number, float) and kind == FLOAT32 else number
        if kind != ARRAY:
            raise ValueError(f"a value of type {kind}, which is unknown")
        of, count = self.integer("I"), self.integer("Q")
        if of == TEXT:
            return [self.text() for _ in range(count)]
        if of not in NUMBERS:
            raise ValueError(f"an array of values of type {of}")
        form = NUMBERS[of]
        n_bytes = count * struct.calcsize(form)
        return list(struct.unpack(f"<{count}{form}", self.take(n_bytes)))


FLOAT32 = 6


def shortest(number: float) -> float:
    """The shortest decimal number that rounds to a float32, such as 1e-05."""
    exact = struct.pack("<f", number)
    for digits in range(1, 10):
        rounded = float(f"{number:.{digits}g}")
        try:
            if struct.pack("<f", rounded) == exact:
                return rounded
        except OverflowError:
            continue
    return number


def _header(reader: _Reader, n_bytes: int) -> GgufHeader:
    version = reader.integer("I")
    if version not in VERSIONS:
        raise ValueError(
            f"it has version {version}; versions {VERSIONS[0]} and {VERSIONS[1]}, little-endian, "
            "are read"
        )
    n_tensors, n_entries = reader.integer("Q"), reader.integer("Q")
    metadata = _metadata(reader, n_entries)
    tensors: dict[str, GgufEntry] = {}
    for _ in range(n_tensors):
        name, entry = _entry(reader)
        if name in tensors:
            raise ValueError(f"the tensor {shorten(name)} occurs twice")
        tensors[name] = entry
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"its alignment {shorten(alignment)} is not a power of two")
    data = -(-reader.position // alignment) * alignment
    for name, entry in tensors.items():
        if entry.offset % alignment or data + entry.offset > n_bytes:
            raise ValueError(
                f"{shorten(name)} has the offset {entry.offset}, which is not a multiple of "
                f"{alignment} within the file"
            )
        tensors[name] = GgufEntry(entry.shape, entry.type, data + entry.offset)
    return GgufHeader(metadata, tensors, n_bytes)


def _metadata(reader: _Reader, n_entries: int) -> dict[str, GgufValue]:
    metadata: dict[str, GgufValue] = {}
    for _ in range(n_entries):
        name = reader.text()
        if name in metadata:
            raise ValueError(f"{shorten(name)} occurs twice in its metadata")
        metadata[name] = reader.value(reader.integer("I"))
    return metadata


def _entry(reader: _Reader) -> tuple[str, GgufEntry]:
    """Name and entry of the next tensor; its offset is from the beginning of the data."""
    name, n_axes = reader.text(), reader.integer("I")
    if n_axes > MAX_GGUF_AXES:
        raise ValueError(f"{shorten(name)} has {n_axes} axes; at most {MAX_GGUF_AXES} are possible")
    sizes = [reader.integer("Q") for _ in range(n_axes)]
    if not all(0 < size < MAX_SIZE for size in sizes):
        raise ValueError(f"{shorten(name)} has the invalid shape {shorten(sizes)}")
    kind, offset = reader.integer("I"), reader.integer("Q")
    return name, GgufEntry(tuple(reversed(sizes)), kind, offset)
