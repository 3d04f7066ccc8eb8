"""A circuit as a figure: its nodes in rows by layer, its edges as lines between them."""

import re
from collections.abc import Iterable, Mapping

from analyses.results.drawing import Network, Node

NAME = re.compile(
    r"(?P<node>(?P<stack>encoder\.|decoder\.|cross\.)?"
    r"(?:L(?P<layer>\d+)(?P<kind>H|KV|MLP|ATTN|\.b_O)\d*|(?P<other>\w+)))(?:\.[qkv])?",
    re.ASCII,
)
"""The name of a writer or a reader; ``node`` is without the letter of what a head reads."""
ENTRY, EXIT = -1, 10**6


def circuit_drawing(
    edges: Mapping[tuple[str, str], float],
    *,
    title: str,
    unit: str,
    labels: Mapping[str, str] | None = None,
) -> Network:
    """The graph of some edges, inputs at the bottom and logits at the top.

    A head's queries, keys and values are one node, whose edges from one writer are added up.

    Args:
        edges: weight of each edge, by the names of its writer and reader.
        title: title of the figure.
        unit: unit of the weights.
        labels: text below the names of some nodes.
    """
    nodes = _layout((name for pair in edges for name in pair), labels or {})
    number = {node.name: index for index, node in enumerate(nodes)}
    weights: dict[tuple[int, int], float] = {}
    for (writer, reader), weight in edges.items():
        ends = number[_parts(writer)["node"]], number[_parts(reader)["node"]]
        weights[ends] = weights.get(ends, 0.0) + weight
    return Network(nodes, weights, title=title, unit=unit)


def _layout(names: Iterable[str], labels: Mapping[str, str]) -> list[Node]:
    """Each node once, in a row for the embeddings, one per sub-layer, or one for the logits."""
    rows: dict[tuple[int, int, int], set[str]] = {}
    for name in names:
        rows.setdefault(_row(name), set()).add(_parts(name)["node"])
    nodes: list[Node] = []
    for height, row in enumerate(sorted(rows)):
        in_row = sorted(rows[row])
        left = (len(in_row) - 1) / 2
        nodes += [
            Node(name, at - left, float(height), labels.get(name, ""))
            for at, name in enumerate(in_row)
        ]
    return nodes


def _row(name: str) -> tuple[int, int, int]:
    """Stack, layer, and sub-layer within it."""
    parts = _parts(name)
    stack = 0 if parts["stack"] == "encoder." else 1
    if parts["other"]:
        return (1, EXIT, 0) if parts["other"] == "logits" else (stack, ENTRY, 0)
    within = 1 if parts["stack"] == "cross." else 2 if parts["kind"] == "MLP" else 0
    return stack, int(parts["layer"]), within


def _parts(name: str) -> dict[str, str]:
    match = NAME.fullmatch(name)
    return {"node": name, "stack": "", "other": name} if match is None else match.groupdict("")
