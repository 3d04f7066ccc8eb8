"""Relative position bias: a learned scalar per head and bucket of distances.

T5, Raffel et al. 2020. Small distances have a bucket each; larger ones share buckets that grow
logarithmically.
"""

from dataclasses import dataclass
from math import log

import torch
from jaxtyping import Int
from torch import Tensor, nn

from interp.model.context import Context
from interp.model.positions.scheme import PositionBias, PositionScheme

Distances = Int[Tensor, "batch query key"]


class RelativeBiasTable(nn.Module):
    """``weight [bucket head]``: one table, shared by the layers of a stack."""

    def __init__(self, n_buckets: int, n_heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_buckets, n_heads).mul_(0.1))

    def of_layer(self, layer: int) -> "RelativeBiasTable":  # noqa: ARG002
        """The table of one layer: itself."""
        return self


class LayerBiasTables(nn.Module):
    """A table for each layer of a stack."""

    def __init__(self, n_layers: int, n_buckets: int, n_heads: int) -> None:
        super().__init__()
        self.layers = [RelativeBiasTable(n_buckets, n_heads) for _ in range(n_layers)]
        for layer, table in enumerate(self.layers):
            self.add_module(str(layer), table)

    def of_layer(self, layer: int) -> RelativeBiasTable:
        """The table of one layer."""
        return self.layers[layer]


@dataclass(frozen=True)
class CausalBuckets:
    """The bucket of each distance; keys after the query share bucket 0.

    Attributes:
        n: number of buckets per direction.
        max_distance: distances of at least this share the last bucket.
    """

    n: int
    max_distance: int

    def __call__(self, key_less_query: Distances) -> Distances:
        """Bucket indices."""
        return self._of_distance((-key_less_query).clamp(min=0))

    def _of_distance(self, distance: Distances) -> Distances:
        exact = self.n // 2
        # In float32, as in training: the boundaries between buckets depend on rounding.
        beyond = (distance.float() / exact).clamp(min=1).log() / log(self.max_distance / exact)
        wide = (exact + (beyond * (self.n - exact)).long()).clamp(max=self.n - 1)
        return torch.where(distance < exact, distance, wide)


@dataclass(frozen=True)
class BidirectionalBuckets(CausalBuckets):
    """Like :class:`CausalBuckets`, with ``n`` more buckets for keys after the query (encoders)."""

    def __call__(self, key_less_query: Distances) -> Distances:
        """Bucket indices."""
        return self.n * (key_less_query > 0) + self._of_distance(key_less_query.abs())


@dataclass(frozen=True)
class RelativeBias(PositionScheme):
    """Adds table[bucket of j − i] to the score of query i and key j.

    Attributes:
        table: the learned biases.
        buckets: the bucket of each distance.
    """

    has_bias = True
    table: RelativeBiasTable
    buckets: CausalBuckets

    def bias(self, context: Context) -> PositionBias:
        """The table's entry for each query and key."""
        return self.table.weight[self.buckets(context.key_less_query)].movedim(-1, 1)
