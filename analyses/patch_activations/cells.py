"""The cells of activation patching: the parts of a point that are patched together.

Cells are indexed by some of layer, head and position. Along the other axes, a cell covers the whole
point: with the axes layer and pos, it consists of all heads of a layer at one position.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from analyses.methods.components import Recorded, components_of
from interp.edits import Edit
from interp.errors import InvalidInput
from interp.model import Network
from interp.points import Place

AXES = ("layer", "head", "pos")
"""The axes that cells may have, in this order."""
HEADS = {"head", "kv_head"}
"""Names of tensor axes that ``head`` indexes."""
TOKENS = {"pos", "query"}
"""Names of tensor axes that ``pos`` indexes."""


def shape_of(
    source: Recorded, places: Mapping[str, Sequence[Place]], axes: tuple[str, ...]
) -> tuple[int, ...]:
    """The number of cells along each axis, the same for all points.

    Raises:
        InvalidInput: a point lacks an axis, or points or layers differ in their number of heads.
    """
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


def edits_of_cells(
    base: Recorded,
    source: Recorded,
    places: Sequence[Place],
    axes: tuple[str, ...],
    cells: Sequence[tuple[int, ...]],
) -> Iterator[list[Edit]]:
    """Yield the edits of a point: those of the two controls, then those of some cells.

    The controls replace all places at once, by their own values and by those of ``source``. A cell
    is its index along each of the axes.
    """
    yield [base.edit(place) for place in places]
    yield [source.edit(place) for place in places]
    for index in cells:
        at = dict(zip(axes, index, strict=True))
        layer = at.pop("layer", None)
        chosen = places if layer is None else [places[layer]]
        yield [source.edit(place, **at) for place in chosen]


def cell_columns(
    model: Network,
    places: Mapping[str, Sequence[Place]],
    sizes: Mapping[str, int],
    tokens: Sequence[str],
) -> dict[str, tuple[object, ...]]:
    """The columns that identify the cells: point, layer, head, pos, token, name, where they apply.

    Args:
        model: the model.
        places: the places of each point.
        sizes: the number of cells along each axis; the last axis varies fastest.
        tokens: the label of each position.
    """
    axes = ("point", *sizes)
    cells: list[dict[str, Any]] = [
        dict(zip(axes, cell, strict=True)) for cell in product(places, *map(range, sizes.values()))
    ]
    columns: dict[str, tuple[object, ...]] = {
        axis: tuple(cell[axis] for cell in cells) for axis in axes
    }
    if "pos" in sizes:
        columns["token"] = tuple(tokens[cell["pos"]] for cell in cells)
    letters = _head_letters(model, places)
    several = len(places) > 1
    columns["name"] = tuple(
        _name(cell, letters[cell["point"]], tokens, several=several) for cell in cells
    )
    return columns


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
