"""Vectors of many parts at many cells, of which most are zero.

Of thousands of features, each is active at few tokens; only these vectors are stored, and those of
some parts are formed at a time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.attribution.feature_outputs import ActiveFeatures
from analyses.methods.attribution.stream_terms import Part


@dataclass(frozen=True, eq=False)
class SparseVectors:
    """The vectors that are stored, and where each belongs.

    Attributes:
        parts: the parts.
        part: of each vector, the index of its part.
        cell: of each vector, the index of its cell.
        vectors: the vectors.
    """

    parts: tuple[Part, ...]
    part: Int[Tensor, " entry"]
    cell: Int[Tensor, " entry"]
    vectors: Float[Tensor, "entry d"]

    @classmethod
    def of(
        cls,
        terms: Mapping[Part, Float[Tensor, "cell d"]],
        active: Sequence[ActiveFeatures],
        rotation: Float[Tensor, "cell d d_rotated"],
    ) -> "SparseVectors":
        """The vectors of parts and of features, each rotated by its cell.

        Args:
            terms: those of parts that are no features, before they are rotated.
            active: the features.
            rotation: the rotation of each cell.
        """
        parts: list[Part] = []
        indices, cells, vectors = list[Tensor](), list[Tensor](), list[Tensor]()
        every_cell = torch.arange(len(rotation), device=rotation.device)
        for part, term in terms.items():
            for features in (each for each in active if each.before == part):
                of_features = _of_features(features, rotation)
                indices.append(of_features[0] + len(parts))
                cells.append(of_features[1])
                vectors.append(of_features[2])
                parts += features.parts
            indices.append(torch.full_like(every_cell, len(parts)))
            cells.append(every_cell)
            vectors.append((term[:, None] @ rotation)[:, 0])
            parts.append(part)
        return cls(tuple(parts), torch.cat(indices), torch.cat(cells), torch.cat(vectors))

    def among(self, parts: Mapping[Part, int], every: tuple[Part, ...]) -> "SparseVectors":
        """The same vectors with the indices of other parts, of which these are some.

        Args:
            parts: the index of each part.
            every: the parts in the order of the indices.
        """
        index = torch.tensor([parts[part] for part in self.parts], device=self.part.device)
        return SparseVectors(every, index[self.part], self.cell, self.vectors)

    def formed(
        self, some: Int[Tensor, " some"], weights: Float[Tensor, "row cell"]
    ) -> Float[Tensor, "some row d"]:
        """The weighted sums over cells of the vectors of some parts.

        Args:
            some: indices of different parts.
            weights: the weight of each cell in each row.
        """
        rows = self.part.new_full((len(self.parts),), -1)
        rows[some] = torch.arange(len(some), device=rows.device)
        entry = (rows[self.part] >= 0).nonzero()[:, 0]
        at, cell, vectors = rows[self.part[entry]], self.cell[entry], self.vectors[entry]
        sums = vectors.new_zeros(len(some), len(weights), vectors.shape[1])
        for row, of_row in enumerate(weights.to(vectors)):
            sums[:, row].index_add_(0, at, vectors * of_row[cell, None])
        return sums


def _of_features(
    active: ActiveFeatures, rotation: Float[Tensor, "cell d d_rotated"]
) -> tuple[Int[Tensor, " entry"], Int[Tensor, " entry"], Float[Tensor, "entry d_rotated"]]:
    """Index, cell and vector of each feature where it is active."""
    cell, index = active.values.nonzero().unbind(-1)
    vectors = active.terms_at(cell, index)
    by_cell = vectors.split(cell.bincount(minlength=len(rotation)).tolist())
    rotated = [of_cell @ rotate for of_cell, rotate in zip(by_cell, rotation, strict=True)]
    return index, cell, torch.cat(rotated)
