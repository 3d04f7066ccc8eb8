"""Effects of edges: the columns that name them, their scores for pruning, and their figure."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from analyses.results.circuit_figure import circuit_drawing
from analyses.results.drawing import Drawing, cell_heatmap

MOST_IN_A_HEATMAP = 500
"""Largest number of edges that are shown in a heatmap."""
DRAWN = 30
"""Number of edges that are drawn as a graph if there are more."""
Edge = tuple[str, str]
"""The names of its writer and its reader."""


def edge_cells(edges: Sequence[Edge]) -> dict[str, list[object]]:
    """The columns of a table with one row per edge: writer, reader, name."""
    return {
        "writer": [writer for writer, _ in edges],
        "reader": [reader for _, reader in edges],
        "name": [f"{writer} → {reader}" for writer, reader in edges],
    }


def scores_by_edge(
    edges: Sequence[Edge], effect: Float[Tensor, "edge prompt"]
) -> dict[Edge, float]:
    """The mean effect of each edge, for :func:`analyses.prune`."""
    return dict(zip(edges, effect.mean(-1).tolist(), strict=True))


def edge_drawing(
    edges: Sequence[Edge], effect: Float[Tensor, "edge prompt"], *, title: str, unit: str
) -> Drawing:
    """The mean effects of edges.

    Returns:
        A heatmap: writers down, readers across, empty where there is no edge. Above
        :data:`MOST_IN_A_HEATMAP` edges, whose cells would be too small to see, a graph of the
        :data:`DRAWN` edges with the largest mean effects, of either sign.
    """
    if len(edges) > MOST_IN_A_HEATMAP:
        mean = effect.mean(-1)
        measured = (~mean.isnan()).nonzero()[:, 0]  # not all, if a call was cancelled
        order = mean[measured].abs().argsort(descending=True, stable=True)[:DRAWN]
        strongest = {edges[number]: float(mean[number]) for number in measured[order].tolist()}
        title = f"{title}: the {len(strongest)} strongest of {len(edges):,} edges"
        return circuit_drawing(strongest, title=title, unit=unit)
    writers, readers = zip(*edges, strict=True)
    axes = ("writer", "reader")
    return cell_heatmap(effect.mean(-1), writers, readers, title=title, axes=axes, unit=unit)
