"""A result as plain data, for the explorer, the HTML report and other programs.

A tensor's data are the bytes of its elements, row by row and little-endian, in base64.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.errors import InvalidInput

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
        return {str(name): plain(own) for name, own in value.items()}
    if isinstance(value, Sequence):
        return [plain(own) for own in value]
    raise InvalidInput(f"A {type(value).__name__} can't be written as plain data.")


def encoded(tensor: Tensor) -> dict[str, Any]:
    """Dtype, shape and elements (``data``) of a tensor."""
    array = tensor.detach().cpu().to(DTYPES.get(tensor.dtype, tensor.dtype)).numpy()
    data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    return {
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "data": base64.b64encode(data).decode(),
    }
