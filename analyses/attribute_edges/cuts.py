"""Cuts of a graph: sets of edges that contain an edge of every path from the inputs to the logits.

The edges from all writers before some point of the forward to all readers after it carry the whole
change of the metric: Σ g · du/dt over these edges is dm/dt. A method is *complete* over a cut if
its scores of these edges sum to the change of the metric.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from interp.graph import Graph, Reader


@dataclass(frozen=True, eq=False)
class Cut:
    """The edges that cross a point of the forward.

    Attributes:
        name: ``inputs`` for the edges from the inputs, else the name of the next reader.
        edges: mask of these edges in the graph.
    """

    name: str
    edges: Bool[Tensor, " edge"]


def cuts_of(graph: Graph) -> list[Cut]:
    """All cuts of a graph, in the order of the forward; the last has the edges to the logits."""
    order = {writer: number for number, writer in enumerate(graph.writers)}
    inputs = {w for w in graph.writers if w.place is not None and w.place.layer is None}
    written, times = 0, {}
    for reader in graph.readers:
        written = max(written, 1 + max(order[source] for source in reader.sources))
        times[reader] = written
    named = {time: reader for reader, time in reversed(times.items())}
    edges = [(writer in inputs, order[writer], times[reader]) for writer, reader in graph.edges]
    return [
        Cut(
            "inputs" if number == 0 else _name_before(named[time]),
            torch.tensor([(entry or at < time) and time <= read for entry, at, read in edges]),
        )
        for number, time in enumerate(sorted(named))
    ]


def _name_before(reader: Reader) -> str:
    """The name of the first reader after the cut, or of its layer's heads if it is a head."""
    if reader.head is None:
        return reader.name
    return f"{reader.name.rpartition('H')[0]} heads"
