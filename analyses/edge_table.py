"""Effects of edges: the columns that name them, their scores for pruning, and their heatmap."""

from collections.abc import Sequence

import plotly.graph_objects as go
import torch
from jaxtyping import Float
from torch import Tensor

from analyses.figures import heatmap

Edge = tuple[str, str]
"""The names of its writer and its reader."""


def edge_cells(edges: Sequence[Edge]) -> dict[str, list[object]]:
    """The columns of a table with a row an edge: writer, reader, name."""
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
    writers, readers = (list(dict.fromkeys(own)) for own in zip(*edges, strict=True))
    rows, columns = ({name: n for n, name in enumerate(own)} for own in (writers, readers))
    mean = torch.full((len(writers), len(readers)), torch.nan, dtype=torch.float64)
    for (writer, reader), own in zip(edges, effect.mean(-1), strict=True):
        mean[rows[writer], columns[reader]] = own
    return heatmap(
        mean,
        title=title,
        rows=writers,
        columns=readers,
        axes=("writer", "reader"),
        unit=unit,
        diverging=True,
    )
