"""Precisions of matrix products on a GPU: float32, TF32 and bfloat16."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@contextmanager
def matmul_precision(setting: str) -> Iterator[None]:
    """Set ``torch.set_float32_matmul_precision`` for a while, then restore what was set before.

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
        name: as in the table.
        dtype: of weights and activations.
        matmul: of :func:`matmul_precision`.
        tolerance: largest difference allowed between two libraries' values, over the largest value.
            A product of bfloat16 is rounded to 2⁻⁹, one of TF32 to 2⁻¹¹, one of float32 to 2⁻²⁴.
    """

    name: str
    dtype: torch.dtype
    matmul: str
    tolerance: float


FLOAT32 = Precision("float32", torch.float32, "highest", 1e-5)
TF32 = Precision("TF32", torch.float32, "high", 1e-2)
BFLOAT16 = Precision("bfloat16", torch.bfloat16, "highest", 1e-1)
PRECISIONS = (FLOAT32, TF32, BFLOAT16)
