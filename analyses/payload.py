"""A result as plain data: what the explorer and the HTML report show, and what other programs read.

Numbers of a tensor are the bytes of its elements, row by row and little-endian, in base64.
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
"""What elements are written as, if not as their own dtype: what is shown, and what can be read."""


def plain(value: object) -> Any:  # noqa: ANN401 - JSON
    """A value as JSON has it; tensors as :func:`encoded`, dataclasses as their fields.

    Raises:
        InvalidInput: it holds something that has no such form.
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
