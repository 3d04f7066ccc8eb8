"""The largest values of a stream, and where they are.

What is kept does not depend on how the stream is divided: of equal values, those that come first in
the corpus are. Values that differ by no more than rounding count as equal: in a causal model, all
texts with the same beginning have the same values there.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


class TopCells:
    """The ``top`` largest values of several units so far, the largest first.

    Attributes:
        value: of each; there are fewer where the stream has fewer.
        cell: the number of its cell; cells are numbered in the order of the corpus.
    """

    def __init__(self, units: int, top: int, device: torch.device) -> None:
        self.top = top
        self.value: Float[Tensor, "unit top"] = torch.empty(units, 0, device=device)
        self.cell: Int[Tensor, "unit top"] = torch.empty(units, 0, dtype=torch.long, device=device)

    def add(self, values: Float[Tensor, "unit cell"], cells: Int[Tensor, " cell"]) -> None:
        """Compare more values, whose cells are in ascending order."""
        if not len(cells):
            return
        largest = largest_of(_rounded(values), min(self.top, len(cells)))
        value = torch.cat([self.value.to(values.dtype), values.gather(-1, largest)], -1)
        cell = torch.cat([self.cell, cells[largest]], -1)
        order = cell.argsort(-1)
        ranked = _rounded(value).gather(-1, order).argsort(dim=-1, descending=True, stable=True)
        order = order.gather(-1, ranked)
        self.value, self.cell = (own.gather(-1, order[:, : self.top]) for own in (value, cell))


def largest_of(values: Float[Tensor, "unit cell"], k: int) -> Int[Tensor, "unit k"]:
    """The k largest of each unit in ascending order of their index; of equal ones the first."""
    least = values.topk(k, dim=-1).values[:, -1:]
    above, equal = values > least, values == least
    remaining = k - above.sum(-1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(-1) <= remaining))
    return chosen.nonzero()[:, 1].view(len(values), k)


def _rounded(values: Float[Tensor, "unit cell"]) -> Float[Tensor, "unit cell"]:
    """The values without the last 8 bits of a float32, or 12 of a float64."""
    bits = {torch.float32: 16, torch.float64: 40}[values.dtype]
    mantissa, exponent = values.frexp()
    return (mantissa * 2.0**bits).round().ldexp(exponent - bits)
