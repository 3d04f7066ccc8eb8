"""Small circuits that do what a model does: candidates from a ranking of edges, and how they do.

    f(C) = 1 − Σ_i |m_i(C) − m_i(M)| / Σ_i |m_i(∅) − m_i(M)|

with the metric m_i of prompt i, of the circuit C, the whole model M, and no edge at all. It is 1
for the whole model, 0 for no edge, and at most the faithfulness of means, in which errors of both
signs cancel.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.circuits.paths import Names, closed
from interp.graph import Graph

Circuit = tuple[Names, ...]
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


def candidates(graph: Graph, order: Sequence[Names], most: int) -> list[Circuit]:
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


def random_circuit(graph: Graph, count: int, generator: torch.Generator) -> Circuit:
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


@dataclass(frozen=True, eq=False)
class SmallestCircuit:
    """The smallest of some circuits that is faithful, beside as many edges at random.

    Attributes:
        edges: of the first that is faithful, or of the largest.
        counts: number of edges of each circuit up to that one.
        values: the metric of these.
        random: the metric of circuits of as many edges as the last, drawn at random.
        is_faithful: whether it is.
    """

    edges: Circuit
    counts: tuple[int, ...]
    values: Float[Tensor, "circuit prompt"]
    random: Float[Tensor, "draw prompt"]
    is_faithful: bool


def smallest_faithful(  # noqa: PLR0913 - which circuits, how they are run, and what is enough
    graph: Graph,
    circuits: Sequence[Circuit],
    run: Callable[[Sequence[Circuit]], Float[Tensor, "circuit prompt"]],
    *,
    ends: tuple[Float[Tensor, " prompt"], Float[Tensor, " prompt"]],
    least: float,
    draws: int,
    seed: int,
) -> SmallestCircuit:
    """The smallest faithful circuit.

    Args:
        graph: of the model.
        circuits: smallest first, at least one.
        run: gives the metric of circuits.
        ends: the metric of the whole model, and without any edge.
        least: the f of a circuit that is faithful.
        draws: circuits at random.
        seed: of these.
    """
    values = run(circuits)
    faithful = (faithfulness(values, *ends) >= least).tolist()
    last = faithful.index(True) if any(faithful) else len(circuits) - 1
    edges, generator = circuits[last], torch.Generator().manual_seed(seed)
    random = [random_circuit(graph, len(edges), generator) for _ in range(draws)]
    return SmallestCircuit(
        edges,
        counts=tuple(map(len, circuits[: last + 1])),
        values=values[: last + 1],
        random=run(random),
        is_faithful=any(faithful),
    )
