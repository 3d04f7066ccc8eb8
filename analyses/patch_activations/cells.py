"""The cells of activation patching: the parts of a point that are patched together.

Cells are indexed by some of layer, head and position. Along the other axes, a cell covers the whole
point: with the axes layer and pos, it consists of all heads of a layer at one position.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.methods.components import Recorded, components_of
from interp.edits import Edit
from interp.errors import InvalidInput
from interp.model import Network
from interp.points import Place

Cell = tuple[int, ...]
"""The index of a cell along each of the axes."""
AXES = ("layer", "head", "pos")
"""The axes that cells may have, in this order."""
HEADS = {"head", "kv_head"}
"""Names of tensor axes that ``head`` indexes."""
TOKENS = {"pos", "query"}
"""Names of tensor axes that ``pos`` indexes."""


@dataclass(frozen=True, eq=False)
class Grid:
    """The cells of some points, as many of each.

    Attributes:
        places: the places of each point, one per layer.
        axes: the axes of a cell: some of :data:`AXES`.
        shape: the number of cells along each axis.
    """

    places: Mapping[str, Sequence[Place]]
    axes: tuple[str, ...]
    shape: tuple[int, ...]

    @classmethod
    def of(
        cls, source: Recorded, places: Mapping[str, Sequence[Place]], axes: tuple[str, ...]
    ) -> "Grid":
        """The cells of the points of a recorded run.

        Raises:
            InvalidInput: a point lacks an axis; points or layers differ in their number of heads.
        """
        return cls(places, axes, _shape_of(source, places, axes))

    @property
    def n_cells(self) -> int:
        """The number of cells of all points."""
        return len(self.places) * prod(self.shape)

    def all_cells(self) -> list[list[Cell]]:
        """All cells of each point; the last axis varies fastest."""
        return [[*product(*map(range, self.shape))] for _ in self.places]

    def edits(
        self, base: Recorded, source: Recorded, cells: Sequence[Sequence[Cell]]
    ) -> Iterator[list[Edit]]:
        """Yield, for each point, the edits of its two controls, then those of some of its cells.

        The controls replace all places at once, by their own values and by those of ``source``.
        """
        for places, of_point in zip(self.places.values(), cells, strict=True):
            yield [base.edit(place) for place in places]
            yield [source.edit(place) for place in places]
            for cell in of_point:
                at = dict(zip(self.axes, cell, strict=True))
                layer = at.pop("layer", None)
                chosen = places if layer is None else [places[layer]]
                yield [source.edit(place, **at) for place in chosen]

    def measured(
        self, values: Float[Tensor, "case prompt"], cells: Sequence[Sequence[Cell]]
    ) -> tuple[
        Float[Tensor, "point prompt"],
        Float[Tensor, "point prompt"],
        Float[Tensor, "point *cell prompt"],
    ]:
        """What the cases of :meth:`edits` gave: both controls, and each cell (NaN for others)."""
        by_point = values.split([2 + len(of_point) for of_point in cells])
        patched = values.new_full((len(cells), *self.shape, values.shape[-1]), torch.nan)
        for grid, of_cases, of_point in zip(patched, by_point, cells, strict=True):
            if of_point:
                grid[tuple(torch.tensor(of_point).T)] = of_cases[2:]
        unchanged, together = (torch.stack([cases[n] for cases in by_point]) for n in (0, 1))
        return unchanged, together, patched

    def columns(self, model: Network, tokens: Sequence[str]) -> dict[str, tuple[object, ...]]:
        """The columns of the cells: point, layer, head, pos, token, name, where they apply.

        Args:
            model: the model.
            tokens: the label of each position.
        """
        axes = ("point", *self.axes)
        cells: list[dict[str, Any]] = [
            dict(zip(axes, cell, strict=True))
            for cell in product(self.places, *map(range, self.shape))
        ]
        columns: dict[str, tuple[object, ...]] = {
            axis: tuple(cell[axis] for cell in cells) for axis in axes
        }
        if "pos" in self.axes:
            columns["token"] = tuple(tokens[cell["pos"]] for cell in cells)
        letters = _head_letters(model, self.places)
        several = len(self.places) > 1
        columns["name"] = tuple(
            _name(cell, letters[cell["point"]], tokens, several=several) for cell in cells
        )
        return columns


def _shape_of(
    source: Recorded, places: Mapping[str, Sequence[Place]], axes: tuple[str, ...]
) -> tuple[int, ...]:
    """The number of cells along each axis, the same for all points; see :meth:`Grid.of`."""
    longest = int(source.lengths(next(iter(places.values()))[0].stack).max())
    shapes: dict[tuple[int, ...], str] = {}
    for point, layers in places.items():
        for place in layers:
            sizes = {"layer": len(layers), "head": source.n_heads(place), "pos": longest}
            if not TOKENS & set(place.point.axes):
                sizes["pos"] = None
            lacking = [axis for axis in axes if sizes[axis] is None]
            if lacking:
                raise InvalidInput(
                    f"{point} has the axes [{' '.join(place.point.axes)}], so its cells have no "
                    f"{lacking[0]} axis; leave {lacking[0]} out of over=."
                )
            shapes[tuple(sizes[axis] or 0 for axis in axes)] = point
    if len(shapes) > 1:
        raise InvalidInput(
            f"The number of cells along {', '.join(axes)} is {' or '.join(map(str, shapes))} at "
            f"{' or '.join(shapes.values())}, but must be the same at all points and layers: patch "
            "one point at a time, choose points with as many heads in every layer, or leave head "
            "out of over=."
        )
    return next(iter(shapes))


def _head_letters(model: Network, places: Mapping[str, Sequence[Place]]) -> dict[str, str]:
    """The prefix of each point's heads: ``KV`` for shared key/value heads (L0KV1), else ``H``."""
    grouped = any("KV" in each.name for each in components_of(model, "v").heads)
    return {
        point: "KV" if grouped and "kv_head" in layers[0].point.axes else "H"
        for point, layers in places.items()
    }


def _name(cell: Mapping[str, Any], head: str, tokens: Sequence[str], *, several: bool) -> str:
    """The name of a cell, such as ``L1H0 pos 3 the``, after that of its point if ``several``."""
    letters = {"layer": "L", "head": head}
    parts = [f"{letter}{cell[axis]}" for axis, letter in letters.items() if axis in cell]
    words = [cell["point"] if several else "", "".join(parts)]
    words += ["pos", str(cell["pos"]), tokens[cell["pos"]]] if "pos" in cell else []
    return " ".join(filter(None, words))
