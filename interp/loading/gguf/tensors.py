"""The tensors of a GGUF file under the names of a family, dequantised as they are read.

A quantised tensor consists of blocks along its last axis, with a scale for each (Q4_1: 32 numbers
of 4 bits, a scale and an offset). The arithmetic of each type is that of the package ``gguf``.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.errors import ModelLoadError, first_line, reason, shorten
from interp.io import UNREADABLE
from interp.loading.gguf.architectures import Architecture
from interp.loading.gguf.header import GgufHeader

PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}
"""Types whose numbers are stored as they are."""
NAME = re.compile(r"(blk\.(?P<layer>\d+)\.)?(?P<part>\w+)\.(?P<kind>weight|bias)")
ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")
"""Tensors with a divisor for each frequency of rotary positions, which are settings."""
WITHOUT_SUFFIX = ("attn_sinks",)
"""Tensors whose name in the family does not end in ``.weight``."""
CHUNK = 2**22
"""Numbers that are dequantised at once."""


@dataclass(frozen=True)
class FileTensor:
    """A tensor of a file.

    Attributes:
        file: the file.
        key: its name.
        shape: its shape.
        kind: the name of its type, such as ``Q4_1``.
        offset: the position of its first byte in the file.
    """

    file: Path
    key: str
    shape: tuple[int, ...]
    kind: str
    offset: int


@dataclass(frozen=True)
class Stored:
    """Where a weight is in the file.

    Attributes:
        key: name of the tensor.
        part: the tensor's name, without layer and ``.weight``.
        index: its index in the tensor's first axis; ``None`` means the whole tensor.
        shape: its shape.
    """

    key: str
    part: str
    index: int | None
    shape: tuple[int, ...]


class GgufSource:
    """The weights of a model in GGUF files.

    Args:
        tensors: the tensors by name.
        architecture: their architecture.
        fields: the fields of its configuration.
        dtype: the dtype of the weights; ``None`` means that of most, and float32 if those are
            quantised.

    Attributes:
        quantisation: the type of most of the quantised numbers, such as ``Q4_1``; ``""`` if no
            tensor is quantised.
    """

    def __init__(
        self,
        tensors: Mapping[str, FileTensor],
        architecture: Architecture,
        fields: Mapping[str, Any],
        dtype: torch.dtype | None = None,
    ) -> None:
        self._tensors, self._changes, self._fields = tensors, architecture.changes, fields
        counts = Counter[str]()
        for tensor in tensors.values():
            counts[tensor.kind] += prod(tensor.shape)
        quantised = [kind for kind, _ in counts.most_common() if kind not in PLAIN]
        self.quantisation = next(iter(quantised), "")
        common = counts.most_common(1)[0][0] if counts else "F32"
        self._dtype = dtype or PLAIN.get(common, torch.float32)
        self._weights: dict[str, Stored] = {}
        for tensor in tensors.values():
            self._weights |= _stored(tensor, architecture)

    def keys(self) -> list[str]:
        """The names of all weights."""
        return list(self._weights)

    def shape(self, key: str) -> tuple[int, ...]:
        """The shape of a weight."""
        weight = self._weights[key]
        if weight.part not in self._changes:
            return weight.shape
        empty = torch.empty(weight.shape, device="meta")
        try:
            return tuple(self._changes[weight.part](empty, self._fields).shape)
        except (RuntimeError, TypeError, ArithmeticError) as error:
            raise ModelLoadError(
                f"{weight.key} {weight.shape} does not fit the sizes in the metadata: "
                f"{first_line(error)}"
            ) from error

    def dtype(self, key: str) -> torch.dtype | None:  # noqa: ARG002 - the same for all
        """The dtype of a weight."""
        return self._dtype

    def read(self, key: str) -> Tensor:
        """The weight, dequantised."""
        weight = self._weights[key]
        change = self._changes.get(weight.part)
        # Gains may have 1 added, which is taken off before they are rounded.
        dtype = torch.float32 if len(weight.shape) == 1 else self._dtype
        values = read_tensor(self._tensors[weight.key], dtype, weight.index)
        changed = values if change is None else change(values, self._fields)
        return changed.to(self._dtype).contiguous()


def tensors_of(file: Path, header: GgufHeader) -> dict[str, FileTensor]:
    """The tensors of a file by name.

    Raises:
        ModelLoadError: a type is unknown, or a tensor reaches beyond the end of the file, overlaps
            another one, or has rows that are not whole blocks.
    """
    gguf = library()
    tensors: dict[str, FileTensor] = {}
    end, before = 0, ""
    for key, entry in sorted(header.tensors.items(), key=lambda item: item[1].offset):
        try:
            kind = gguf.GGMLQuantizationType(entry.type)
            per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        except (KeyError, ValueError) as error:
            raise ModelLoadError(
                f"{shorten(key)} has the type {entry.type}, which the package gguf does not know."
            ) from error
        if not entry.shape or entry.shape[-1] % per_block:
            raise ModelLoadError(
                f"{shorten(key)} has the shape {entry.shape}, whose rows are not whole blocks of "
                f"{per_block} numbers ({kind.name})."
            )
        if entry.offset < end:
            raise ModelLoadError(f"{shorten(key)} overlaps {shorten(before)}.")
        end, before = entry.offset + prod(entry.shape) // per_block * block_bytes, key
        if end > header.n_bytes:
            raise ModelLoadError(
                f"{shorten(key)} reaches beyond the end of the file, which is truncated."
            )
        tensors[key] = FileTensor(file, key, entry.shape, kind.name, entry.offset)
    return tensors


def read_tensor(
    tensor: FileTensor, dtype: torch.dtype = torch.float32, index: int | None = None
) -> Tensor:
    """The values of a tensor, or those of one entry of its first axis, in ``dtype``.

    Raises:
        ModelLoadError: the file can't be read, or the package ``gguf`` can't dequantise the type.
    """
    try:
        return _dequantised(tensor, dtype, index)
    except NotImplementedError as error:
        raise ModelLoadError(
            f"{tensor.file}: {tensor.key} is quantised as {tensor.kind}, which the package gguf "
            "can't dequantise."
        ) from error
    except UNREADABLE as error:
        raise ModelLoadError(
            f"{tensor.file}: {tensor.key} can't be read: {reason(error)}."
        ) from error


def _dequantised(tensor: FileTensor, dtype: torch.dtype, index: int | None) -> Tensor:
    gguf = library()
    of = gguf.GGMLQuantizationType[tensor.kind]
    per_block, block_bytes = gguf.GGML_QUANT_SIZES[of]
    shape = tensor.shape if index is None else tensor.shape[1:]
    n_blocks = prod(shape) // per_block
    start = tensor.offset + (index or 0) * n_blocks * block_bytes
    values = torch.empty(prod(shape), dtype=dtype)
    step = max(1, CHUNK // per_block)
    for first in range(0, n_blocks, step):
        # Read instead of mapped, since pages of a mapped file stay in memory.
        n_bytes = min(step, n_blocks - first) * block_bytes
        blocks = np.fromfile(tensor.file, np.uint8, n_bytes, offset=start + first * block_bytes)
        if len(blocks) < n_bytes:
            raise OSError("it ends before its last tensor")
        part = values[first * per_block : (first + step) * per_block]
        if tensor.kind in PLAIN:
            part.copy_(torch.from_numpy(blocks).view(PLAIN[tensor.kind]))
        else:
            with np.errstate(all="ignore"):  # what is not finite is refused by its name
                part.copy_(torch.from_numpy(gguf.quants.dequantize(blocks, of)))
    return values.reshape(shape)


def library() -> Any:  # noqa: ANN401 - a module
    """The package ``gguf``.

    Raises:
        ModelLoadError: it is not installed.
    """
    try:
        import gguf  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise ModelLoadError(
            "GGUF files are read with the package gguf, which is not installed. Run: "
            "pip install 'interp[gguf]'"
        ) from error
    return gguf


def _stored(tensor: FileTensor, architecture: Architecture) -> dict[str, Stored]:
    """Where the weights are that a tensor holds, by their names in the family.

    Tensors that the architecture does not name keep their names, which no family knows.
    """
    key, shape = tensor.key, tensor.shape
    match = NAME.fullmatch(key)
    name = None if match is None else architecture.names.get(match["part"])
    if match is None or name is None:
        return {} if key in ROPE_TENSORS else {key: Stored(key, key, None, shape)}
    if match["layer"] is not None:
        name = f"{architecture.block.format(match['layer'])}{name}"
    if match["part"] not in WITHOUT_SUFFIX:
        name = f"{name}.{match['kind']}"
    if "*" not in name:
        return {name: Stored(key, match["part"], None, shape)}
    return {
        name.replace("*", str(index)): Stored(key, match["part"], index, shape[1:])
        for index in range(shape[0])
    }
