"""Small faithful circuits: candidates from a ranking of edges, and their faithfulness.

    f(C) = 1 − Σ_i |m_i(C) − m_i(M)| / Σ_i |m_i(∅) − m_i(M)|

where m_i is the metric on prompt i, C the circuit, M the whole model, and ∅ no edge at all. It is 1
for the whole model, 0 for no edge, and at most the faithfulness of means, in which errors of both
signs cancel.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.methods.circuits import Names, closed
from interp.graph import Graph

Circuit = tuple[Names, ...]
EACH, FACTOR = 16, 1.15
"""There is a candidate for each number of edges up to ``EACH``, and then for numbers that grow by
``FACTOR``."""


def faithfulness(
    values: Float[Tensor, "*circuit prompt"],
    whole: Float[Tensor, " prompt"],
    empty: Float[Tensor, " prompt"],
) -> Float[Tensor, "*circuit"]:
    """f of circuits, from their metric and the metric of the whole model and without any edge."""
    return 1 - (values - whole).abs().sum(-1) / (empty - whole).abs().sum(-1)


def candidates(graph: Graph, order: Sequence[Names], most: int) -> list[Circuit]:
    """Circuits of the highest-ranked edges that are on a path; each once, smallest first.

    Args:
        graph: graph of the model.
        order: all edges, highest-ranked first.
        most: maximum number of edges to take.
    """
    counts: list[int] = []
    count = 1
    while count < most:
        counts.append(count)
        count = count + 1 if count < EACH else max(count + 1, round(count * FACTOR))
    circuits = (closed(graph, order[:count]) for count in [*counts, most])
    return [circuit for circuit in dict.fromkeys(circuits) if circuit]


def random_circuit(graph: Graph, count: int, generator: torch.Generator) -> Circuit:
    """The edges on a path in the shortest prefix of a random order with at least ``count`` such."""
    every = [(writer.name, reader.name) for writer, reader in graph.edges]
    order = [every[n] for n in torch.randperm(len(every), generator=generator).tolist()]
    low, high = count, len(order)  # more edges never take one off its path
    while low < high:
        middle = (low + high) // 2
        if len(closed(graph, order[:middle])) >= count:
            high = middle
        else:
            low = middle + 1
    return closed(graph, order[:high])


@dataclass(frozen=True, eq=False)
class SmallestCircuit:
    """The smallest faithful circuit of some, compared with random circuits of the same size.

    Attributes:
        edges: edges of the smallest faithful circuit, or of the largest circuit if none is.
        counts: number of edges of each circuit up to this one.
        values: the metric of these circuits.
        random: the metric of random circuits with the same number of edges as this one, or more.
        is_faithful: whether this circuit is faithful.
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
        graph: graph of the model.
        circuits: at least one circuit, smallest first.
        run: function that returns the metric of circuits.
        ends: the metric of the whole model, and without any edge.
        least: the smallest f of a faithful circuit.
        draws: number of random circuits.
        seed: seed of the random circuits.
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
