"""Averages over queries of what heads attend to: many statistics in a few passes over a pattern.

    sums over keys        A @ [1, j, j², …]       total weight, distance, variance, classes
    sums over cells       ⟨A, M⟩ for masks M      induction, duplicate tokens, …
    sums over diagonals   A's rows, each shifted  mass by the distance between query and key

Each statistic is the average, over the queries of a prompt for which it is defined, of a number per
query. Nothing of the size [head query key statistic] is formed: masks are shared by all heads, and
patterns are taken in parts that stay in the processor's cache.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor

from analyses.methods.heads.attention_averages import uniform_weights

ENTROPY, NORMALIZED, DISTANCE = "entropy", "normalized entropy", "distance"
VARIANCE = "distance variance"
BOS, FIRST = "bos", "first position"
"""The mass on the first token of a prompt, by whether that is BOS."""
WEIGHTINGS = "attention", "value-weighted"
"""Attention weights as they are, and times the lengths of what is written from each key."""
PART = 2**22
"""The most attention weights that are averaged at a time."""
Marks = Bool[Tensor, "prompt query key"]
Weights = Float[Tensor, "prompt head query key"]


def offsets_by_name(farthest: int, *, bidirectional: bool) -> dict[str, int]:
    """Position of the key minus position of the query, by the name of the mass there."""
    near = {"self": 0, "previous": -1, **({"next": 1} if bidirectional else {})}
    signs = (-1, 1) if bidirectional else (-1,)
    return near | {
        f"offset {by:+d}": by for n in range(2, farthest + 1) for by in (sign * n for sign in signs)
    }


@dataclass(frozen=True, eq=False)
class Measured:
    """The statistics of some prompts, whose tokens come before their padding.

    Attributes:
        counted: which queries count.
        start: name of the mass on the first key.
        near: the offsets at which masses are measured, by name; none across stacks.
        cells: marked cells, whose mass is averaged over the queries that see one of them.
        classes: marked keys, whose mass is averaged over all queries that count.
        crossing: whether keys are tokens of another stack, at no distance from the queries.
    """

    counted: Bool[Tensor, "prompt query"]
    start: str
    near: Mapping[str, int]
    cells: Mapping[str, Marks]
    classes: Mapping[str, Bool[Tensor, "prompt key"]]
    crossing: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The statistics, in the order of :meth:`QueryAverages.of`."""
        apart = () if self.crossing else (DISTANCE, VARIANCE)
        masses = (self.start, *self.near, *self.cells, *self.classes)
        return (ENTROPY, NORMALIZED, *apart, *masses)


class QueryAverages:
    """Averages of any weights on the keys that some queries see.

    Args:
        measured: the statistics.
        visible: which keys each query sees.
        dtype: dtype of the weights.

    Attributes:
        measured: the statistics.
        visible: which keys each query sees.
    """

    def __init__(self, measured: Measured, visible: Marks, dtype: torch.dtype) -> None:
        self.measured, self.visible, self._dtype = measured, visible, dtype
        n_query, n_key = visible.shape[1:]
        query, key = (torch.arange(n, device=visible.device) for n in (n_query, n_key))
        middle = (n_key - 1) / 2  # so that sums of squares are small
        self._query = (query - middle).to(dtype)
        place = (key - middle).to(dtype).expand(len(visible), -1)
        classes = [members.to(dtype) for members in measured.classes.values()]
        columns = [torch.ones_like(place), place, place.square(), *classes]
        self._of_keys: Float[Tensor, "prompt key column"] = torch.stack(columns, -1)
        self._is_causal = not bool(visible.triu(1).any())
        self._free = visible.sum(-1)
        marked = [cells & visible for cells in measured.cells.values()]
        self._averaged = torch.stack([*self._queries(marked)], -1) & measured.counted[..., None]
        end = len(measured.names) - len(measured.classes)
        self._pairs = slice(end - len(marked), end)
        seen = zip(marked, self._averaged[..., self._pairs].unbind(-1), strict=True)
        cells = [(cells & queries[..., None]).flatten(1).to(dtype) for cells, queries in seen]
        none = self._query.new_empty(len(visible), 0, n_query * n_key)
        self._of_cells: Float[Tensor, "prompt pair cell"] = torch.stack(cells, 1) if cells else none
        self._scratch: dict[str, Tensor] = {}

    def _queries(self, marked: list[Marks]) -> Iterator[Bool[Tensor, "prompt query"]]:
        """The queries over which each statistic is averaged.

        With one visible key, entropy and distance are 0, and the mass on that key is 1, whatever a
        head does.
        """
        visible, measured = self.visible, self.measured
        free = self._free > 1
        yield from [free] * (2 if measured.crossing else 4)
        later = torch.arange(visible.shape[1], device=visible.device) > 0
        yield free & visible[..., 0] & (later | measured.crossing)
        yield from (free & _diagonal(visible, by) for by in measured.near.values())
        yield from (free & cells.any(-1) for cells in marked)
        yield from [torch.ones_like(free)] * len(measured.classes)

    def parts(self, n_heads: int) -> Iterator[tuple[slice, slice]]:
        """Prompts and heads whose weights fit into a part."""
        prompts, n_query, n_key = self.visible.shape
        heads = min(n_heads, max(1, PART // (n_query * n_key)))
        rows = max(1, PART // (heads * n_query * n_key)) if heads == n_heads else 1
        for row in range(0, prompts, rows):
            for head in range(0, n_heads, heads):
                yield slice(row, min(row + rows, prompts)), slice(head, min(head + heads, n_heads))

    def scratch(self, name: str, *shape: int) -> Tensor:
        """Memory of a shape, which the next call with this name overwrites."""
        size = prod(shape)
        buffer = self._scratch.get(name)
        if buffer is None or buffer.numel() < size:
            buffer = self._scratch[name] = self._query.new_empty(size)
        return buffer[:size].view(shape)

    def of(self, weights: Weights, rows: slice) -> Float[Tensor, "prompt head statistic"]:
        """Each statistic of the weights of some prompts; NaN where no query counts.

        Queries whose weights are all zero do not count.

        Args:
            weights: weights on the visible keys, of the prompts ``rows``.
            rows: indices of the prompts.
        """
        measured = self.measured
        flat = weights.flatten(1, 2) @ self._of_keys[rows]
        sums = flat.unflatten(1, weights.shape[1:3])
        nats = torch.special.entr(weights, out=self.scratch("part", *weights.shape)).sum(-1)
        largest = self._free[rows].clamp(min=2).to(self._dtype).log()[:, None]
        apart = () if measured.crossing else self._distances(weights, sums)
        near = (_diagonal(weights, by) for by in measured.near.values())
        blank = [torch.zeros_like(nats)] * len(measured.cells)
        of_queries = [nats, nats / largest, *apart, weights[..., 0], *near, *blank]
        each = torch.stack([*of_queries, *sums[..., 3:].unbind(-1)], -1)
        counted = self._averaged[rows].to(self._dtype)
        summed = (each * counted[:, None]).sum(2)
        summed[..., self._pairs] = weights.flatten(2) @ self._of_cells[rows].mT
        return summed / _number(counted, sums[..., 0])

    def of_cells(self, weights: Weights, rows: slice) -> Float[Tensor, "prompt head pair"]:
        """The masses on marked cells alone, as :meth:`of` has them."""
        counted = self._averaged[rows][..., self._pairs].to(self._dtype)
        return weights.flatten(2) @ self._of_cells[rows].mT / _number(counted, weights.sum(-1))

    def of_all(self, weights: Weights) -> Float[Tensor, "prompt head statistic"]:
        """Each statistic of the weights of all prompts."""
        parts = self.parts(weights.shape[1])
        by_rows: dict[int, list[Tensor]] = {}
        for rows, heads in parts:
            by_rows.setdefault(rows.start, []).append(self.of(weights[rows, heads], rows))
        return torch.cat([torch.cat(each, 1) for each in by_rows.values()])

    @cached_property
    def of_uniform(self) -> Float[Tensor, "prompt statistic"]:
        """Each statistic of equal weights on all visible keys."""
        return self.of_all(uniform_weights(self.visible, self._dtype))[:, 0]

    def _distances(
        self, weights: Weights, sums: Float[Tensor, "prompt head query column"]
    ) -> tuple[Float[Tensor, "prompt head query"], Float[Tensor, "prompt head query"]]:
        """Σ_j A_ij |i − j|, and the variance of j under the weights of each query."""
        total, key, square = sums[..., :3].unbind(-1)
        distance = self._query * total - key
        if not self._is_causal:  # |i − j| = 2 (i − j) [j ≤ i] − (i − j)
            earlier = torch.tril(weights, out=self.scratch("part", *weights.shape))
            before = earlier @ self._of_keys[0, :, :2]
            distance = 2 * (self._query * before[..., 0] - before[..., 1]) - distance
        safe = total.where(total > 0, 1)
        return distance, (square / safe - (key / safe).square()).clamp(min=0)

    def by_distance(
        self, weights: Weights, rows: slice
    ) -> tuple[Float[Tensor, "head distance"], Float[Tensor, "head distance"]]:
        """The mass at each distance from 0 on: of keys up to the query, and of those after it.

        Sums over prompts and over the queries that count.
        """
        counted = self.measured.counted[rows]
        if self._is_causal:
            before = self._diagonals(weights, counted)
            return before, torch.zeros_like(before)
        part = self.scratch("part", *weights.shape)
        before = self._diagonals(torch.tril(weights, out=part), counted)
        later = torch.triu(weights, 1, out=part).flip(-1, -2)
        return before, self._diagonals(later, counted.flip(-1))

    @cached_property
    def uniform_by_distance(
        self,
    ) -> tuple[Float[Tensor, "1 distance"], Float[Tensor, "1 distance"]]:
        """The mass at each distance of equal weights on all visible keys."""
        weights = uniform_weights(self.visible, self._dtype)
        sides = [self.by_distance(weights[rows], rows) for rows, _ in self.parts(1)]
        before, after = (torch.stack(side).sum(0) for side in zip(*sides, strict=True))
        return before, after

    def _diagonals(
        self, weights: Weights, counted: Bool[Tensor, "prompt query"]
    ) -> Float[Tensor, "head distance"]:
        """Sums of the weights on and below the diagonal, by distance; the others are zero.

        With n zeros before it, an n × n matrix is one of n × (n + 1) whose columns are diagonals:
        the cell (i, j) is at row i, column n − (i − j).
        """
        prompts, heads, n, _ = weights.shape
        shifted = self.scratch("shifted", prompts, heads, n + n * n)
        shifted[..., :n] = 0
        shifted[..., n:] = weights.flatten(2)
        sums = counted[:, None, None].to(weights.dtype) @ shifted.view(prompts, heads, n, n + 1)
        return sums[:, :, 0, 1:].flip(-1).sum(0)


class AveragesOfLayers:
    """The averages of several layers; layers whose queries see the same keys share them.

    Args:
        measured: the statistics.
    """

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self._of_masks: list[QueryAverages] = []

    def of(self, visible: Marks, dtype: torch.dtype) -> QueryAverages:
        """The averages of a layer whose queries see these keys."""
        for averages in self._of_masks:
            if torch.equal(averages.visible, visible):
                return averages
        self._of_masks.append(QueryAverages(self._measured, visible, dtype))
        return self._of_masks[-1]


def _number(
    counted: Float[Tensor, "prompt query statistic"], total: Float[Tensor, "prompt head query"]
) -> Float[Tensor, "prompt head statistic"]:
    """The number of queries that count and have weights."""
    axes = "prompt query statistic, prompt head query -> prompt head statistic"
    return einsum(counted, (total > 0).to(counted.dtype), axes)


def _diagonal(cells: Tensor, by: int) -> Tensor:
    """The cell of each query at an offset; zero where there is none."""
    each = cells.new_zeros(cells.shape[:-1])
    values = cells.diagonal(by, -2, -1)
    first = max(0, -by)
    each[..., first : first + values.shape[-1]] = values
    return each
