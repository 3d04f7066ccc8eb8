"""A result as plain data, for the explorer, the HTML report and other programs.

A tensor's data are the bytes of its elements, row by row and little-endian, in base64.
"""

import base64
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from interp.errors import InvalidInput
from interp.io import TensorData

DTYPES = {
    torch.float64: torch.float32,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.int64: torch.int32,
}
"""The dtype that elements are converted to: precise enough to be shown, and widely readable."""


def plain(value: object) -> Any:  # noqa: ANN401 - JSON
    """Convert a value to JSON types; tensors as in :func:`encoded`, dataclasses as their fields.

    Raises:
        InvalidInput: it holds something that can't be converted.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        return encoded(value)
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, Sequence):
        return [plain(entry) for entry in value]
    raise InvalidInput(f"A {type(value).__name__} can't be written as plain data.")


def encoded(values: Tensor | Sequence[Any]) -> dict[str, Any]:
    """Dtype, shape and elements (``data``) of a tensor, or of lists of numbers."""
    tensor = torch.as_tensor(values, dtype=None if isinstance(values, Tensor) else torch.float64)
    array = tensor.detach().cpu().to(DTYPES.get(tensor.dtype, tensor.dtype)).numpy()
    data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    return {
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "data": base64.b64encode(data).decode(),
    }


def as_bytes(weights: Float[Tensor, "*shape"]) -> UInt8[Tensor, "*shape"]:
    """Weights from 0 to 1 in 256 steps: a byte u stands for A with |A − u/255| ≤ 1/510."""
    return (weights.double() * 255).round().to(torch.uint8)


def reduced(
    patterns: Float[Tensor, "head query key"], most: int
) -> Float[Tensor, "head row column"]:
    """Patterns with at most so many rows and columns, each cell a mean over a block of cells."""
    rows, columns = (min(size, most) for size in patterns.shape[-2:])
    return adaptive_avg_pool2d(patterns[:, None], (rows, columns))[:, 0]


def nbytes(value: Any) -> int:  # noqa: ANN401 - a result or a part of one
    """Size of a result in bytes: of its tensors, tables, texts and what contains them."""
    if isinstance(value, Tensor | TensorData):
        return value.nbytes
    if isinstance(value, pd.DataFrame):
        return int(value.memory_usage(deep=True).sum())
    if is_dataclass(value):
        return sum(nbytes(getattr(value, field.name)) for field in fields(value))
    parts: Any = value.values() if isinstance(value, Mapping) else ()  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        parts = value
    return sys.getsizeof(value) + sum(map(nbytes, parts))
