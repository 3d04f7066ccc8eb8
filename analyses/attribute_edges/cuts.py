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
    order = {writer.name: number for number, writer in enumerate(graph.writers)}
    of_inputs = [w.place is not None and w.place.layer is None for w in graph.writers]
    written, times = 0, dict[str, int]()
    for reader in graph.readers:
        written = max(written, 1 + max(order[source.name] for source in reader.sources))
        times[reader.name] = written
    following = {times[reader.name]: reader for reader in reversed(graph.readers)}
    at = torch.tensor([order[writer.name] for writer, _ in graph.edges])
    read = torch.tensor([times[reader.name] for _, reader in graph.edges])
    entry = torch.tensor(of_inputs)[at]
    return [
        Cut(
            "inputs" if number == 0 else _name_before(following[time]),
            (entry | (at < time)) & (time <= read),
        )
        for number, time in enumerate(sorted(following))
    ]


def _name_before(reader: Reader) -> str:
    """The name of the first reader after the cut, or of its layer's heads if it is a head."""
    if reader.head is None:
        return reader.name
    return f"{reader.name.rpartition('H')[0]} heads"
