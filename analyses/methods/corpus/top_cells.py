"""The largest values of a stream, and their cells.

The result does not depend on how the stream is divided into batches: of equal values, those that
come first in the corpus are kept. Values that differ only by rounding count as equal, since in a
causal model all texts with the same beginning have the same values there.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


class TopCells:
    """The ``top`` largest values of several units so far, the largest first.

    Attributes:
        value: the values; fewer than ``top`` if the stream has fewer.
        cell: index of the cell of each value; cells are numbered in the order of the corpus.
    """

    def __init__(self, units: int, top: int, device: torch.device) -> None:
        self.top = top
        self.value: Float[Tensor, "unit top"] = torch.empty(units, 0, device=device)
        self.cell: Int[Tensor, "unit top"] = torch.empty(units, 0, dtype=torch.long, device=device)

    def add(self, values: Float[Tensor, "unit cell"], cells: Int[Tensor, " cell"]) -> None:
        """Add values, whose cells are in ascending order."""
        if not len(cells):
            return
        largest = largest_of(_rounded(values), min(self.top, len(cells)))
        self._add(values.gather(-1, largest), cells[largest])

    def merge(self, other: "TopCells") -> None:
        """Add the values of another stream of the same units, with other cells."""
        self._add(other.value.to(self.value.device), other.cell.to(self.cell.device))

    def _add(self, value: Float[Tensor, "unit few"], cell: Int[Tensor, "unit few"]) -> None:
        value = torch.cat([self.value.to(value.dtype), value], -1)
        cell = torch.cat([self.cell, cell], -1)
        order = cell.argsort(-1)
        ranked = _rounded(value).gather(-1, order).argsort(dim=-1, descending=True, stable=True)
        order = order.gather(-1, ranked)
        self.value, self.cell = (
            tensor.gather(-1, order[:, : self.top]) for tensor in (value, cell)
        )


def largest_of(values: Float[Tensor, "unit cell"], k: int) -> Int[Tensor, "unit k"]:
    """The indices of each unit's k largest values, ascending; of equal values, the first ones."""
    least = values.topk(k, dim=-1).values[:, -1:]
    above, equal = values > least, values == least
    remaining = k - above.sum(-1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(-1) <= remaining))
    return chosen.nonzero()[:, 1].view(len(values), k)


def _rounded(values: Float[Tensor, "unit cell"]) -> Float[Tensor, "unit cell"]:
    """The values rounded to 16 significant bits in float32, or to 40 in float64."""
    bits = {torch.float32: 16, torch.float64: 40}[values.dtype]
    mantissa, exponent = values.frexp()
    return (mantissa * 2.0**bits).round().ldexp(exponent - bits)
