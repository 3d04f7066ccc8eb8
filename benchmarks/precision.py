"""Precisions of matrix products on a GPU: float32, TF32 and bfloat16."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@contextmanager
def matmul_precision(setting: str) -> Iterator[None]:
    """Set ``torch.set_float32_matmul_precision`` in a block, then restore the previous setting.

    Args:
        setting: ``"highest"`` computes float32 products in float32, ``"high"`` in TF32 on a GPU.
    """
    before = torch.get_float32_matmul_precision()
    if setting == before:
        yield
        return
    torch.set_float32_matmul_precision(setting)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@dataclass(frozen=True)
class Precision:
    """A dtype of weights and activations, and how its products are computed.

    Attributes:
        name: name in the table.
        dtype: dtype of weights and activations.
        matmul: setting of :func:`matmul_precision`.
        tolerance: largest allowed difference between two libraries' values, relative to the largest
            value. Relative rounding errors are 2⁻⁹ in bfloat16, 2⁻¹¹ in TF32, 2⁻²⁴ in float32.
    """

    name: str
    dtype: torch.dtype
    matmul: str
    tolerance: float


FLOAT32 = Precision("float32", torch.float32, "highest", 1e-5)
TF32 = Precision("TF32", torch.float32, "high", 1e-2)
BFLOAT16 = Precision("bfloat16", torch.bfloat16, "highest", 1e-1)
PRECISIONS = (FLOAT32, TF32, BFLOAT16)
