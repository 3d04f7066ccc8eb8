"""Paths of a circuit: from the inputs through heads and MLPs to the logits.

An edge that is on no path from an input to the logits has no effect. The strongest path through a
part is the one whose weakest edge is strongest.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from interp.graph import Graph, Reader

Names = tuple[str, str]
"""An edge, as the names of writer and reader."""
LOGITS = "logits"


@dataclass(frozen=True)
class CircuitPath:
    """A path through a circuit.

    Attributes:
        edges: its edges, from an input to the logits.
        strength: the smallest |weight| of its edges.
    """

    edges: tuple[Names, ...]
    strength: float

    @property
    def writers(self) -> tuple[str, ...]:
        """The writers on the path, the input first."""
        return tuple(writer for writer, _ in self.edges)


def next_writers(graph: Graph) -> dict[str, tuple[str, ...]]:
    """The names of the writers that depend directly on each reader; the logits have none.

    Keys and values that several heads share lead to each of these heads.
    """
    names = {writer.name for writer in graph.writers}
    return {reader.name: _next(graph, reader, names) for reader in graph.readers}


def closed(graph: Graph, edges: Iterable[Names]) -> tuple[Names, ...]:
    """The given edges that are on a path from an input to the logits, in their order."""
    remaining, following, inputs = list(edges), next_writers(graph), inputs_of(graph)
    while True:
        writers = {writer for writer, _ in remaining}
        reached = inputs.union(*(following[reader] for _, reader in remaining))
        connected = [
            (writer, reader)
            for writer, reader in remaining
            if writer in reached and (reader == LOGITS or not writers.isdisjoint(following[reader]))
        ]
        if len(connected) == len(remaining):
            return tuple(connected)
        remaining = connected


def strongest_paths(graph: Graph, weights: Mapping[Names, float]) -> list[CircuitPath]:
    """The strongest path through each part of a circuit, each once, strongest first.

    Args:
        graph: graph of the model.
        weights: weights of the edges of the circuit.
    """
    following = next_writers(graph)
    order = {writer.name: number for number, writer in enumerate(graph.writers)}
    edges = sorted(closed(graph, weights), key=lambda edge: order[edge[0]])
    before: dict[str, CircuitPath] = {
        name: CircuitPath((), float("inf")) for name in inputs_of(graph)
    }
    for edge in edges:  # all edges that lead to its writer come before it
        for writer in following[edge[1]]:
            _keep_stronger(before, writer, _joined(before[edge[0]], edge, weights))
    after: dict[str, CircuitPath] = {}
    for edge in reversed(edges):
        rest = [CircuitPath((), float("inf"))] if edge[1] == LOGITS else []
        rest += [after[writer] for writer in following[edge[1]] if writer in after]
        for path in rest:
            longer = CircuitPath((edge, *path.edges), min(abs(weights[edge]), path.strength))
            _keep_stronger(after, edge[0], longer)
    through = {
        CircuitPath(
            before[name].edges + name_paths.edges, min(before[name].strength, name_paths.strength)
        )
        for name, name_paths in after.items()
    }
    return sorted(through, key=lambda path: (-path.strength, path.edges))


def inputs_of(graph: Graph) -> set[str]:
    """The names of the embeddings."""
    return {w.name for w in graph.writers if w.place is not None and w.place.layer is None}


def _next(graph: Graph, reader: Reader, names: set[str]) -> tuple[str, ...]:
    if reader.name == LOGITS:
        return ()
    node = reader.name if reader.head is None else reader.name.rpartition(".")[0]
    if node in names:
        return (node,)
    layer = node.rpartition("KV" if "KV" in node else "H")[0]
    if f"{layer}ATTN" in names:
        return (f"{layer}ATTN",)
    heads = [writer.name for writer in graph.writers if writer.name.startswith(f"{layer}H")]
    groups = len([other for other in graph.readers if other.place == reader.place])
    size = len(heads) // groups
    first = (reader.head or 0) * size
    return tuple(heads[first : first + size])


def _joined(path: CircuitPath, edge: Names, weights: Mapping[Names, float]) -> CircuitPath:
    return CircuitPath((*path.edges, edge), min(path.strength, abs(weights[edge])))


def _keep_stronger(paths: dict[str, CircuitPath], name: str, path: CircuitPath) -> None:
    if name not in paths or path.strength > paths[name].strength:
        paths[name] = path
