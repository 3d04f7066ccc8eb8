"""Effects of edges: the columns that name them, their scores for pruning, and their heatmap."""

from collections.abc import Sequence

import plotly.graph_objects as go
from jaxtyping import Float
from torch import Tensor

from analyses.figures import cell_heatmap

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


def edge_heatmap(
    edges: Sequence[Edge], effect: Float[Tensor, "edge prompt"], *, title: str, unit: str
) -> go.Figure:
    """Heatmap of the mean effect: writers down, readers across; empty where there is no edge."""
    writers, readers = zip(*edges, strict=True)
    axes = ("writer", "reader")
    return cell_heatmap(effect.mean(-1), writers, readers, title=title, axes=axes, unit=unit)
