"""Small circuits that do what a model does: candidates from a ranking of edges, and how they do.

    f(C) = 1 − Σ_i |m_i(C) − m_i(M)| / Σ_i |m_i(∅) − m_i(M)|

with the metric m_i of prompt i, of the circuit C, the whole model M, and no edge at all. It is 1
for the whole model, 0 for no edge, and at most the faithfulness of means, in which errors of both
signs cancel.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from interp.circuits.paths import Names, closed
from interp.graph import Graph

EACH, FACTOR = 16, 1.15
"""Circuits of each number of edges up to the first are candidates, then of numbers that rise by
this factor."""


def faithfulness(
    values: Float[Tensor, "*circuit prompt"],
    whole: Float[Tensor, " prompt"],
    empty: Float[Tensor, " prompt"],
) -> Float[Tensor, "*circuit"]:
    """f of circuits from their metric, that of the whole model, and that without any edge."""
    return 1 - (values - whole).abs().sum(-1) / (empty - whole).abs().sum(-1)


def candidates(graph: Graph, order: Sequence[Names], most: int) -> list[tuple[Names, ...]]:
    """Circuits of the highest-ranked edges, those on no path left out; each once, smallest first.

    Args:
        graph: of the model.
        order: all edges, highest-ranked first.
        most: of the edges that are taken.
    """
    counts: list[int] = []
    count = 1
    while count < most:
        counts.append(count)
        count = count + 1 if count < EACH else max(count + 1, round(count * FACTOR))
    found = (closed(graph, order[:count]) for count in [*counts, most])
    return [circuit for circuit in dict.fromkeys(found) if circuit]


def random_circuit(graph: Graph, count: int, generator: torch.Generator) -> tuple[Names, ...]:
    """The first edges of a random order of which ``count`` or more are on a path."""
    every = [(writer.name, reader.name) for writer, reader in graph.edges]
    order = [every[n] for n in torch.randperm(len(every), generator=generator).tolist()]
    low, high = count, len(order)  # edges are only added to the paths of fewer
    while low < high:
        middle = (low + high) // 2
        if len(closed(graph, order[:middle])) >= count:
            high = middle
        else:
            low = middle + 1
    return closed(graph, order[:high])
