"""Traces an answer upstream, from the logits to the embeddings, in the linear network of one run.

A node is a writer at a position. Its demand is the direction along which later readers take what it
writes; the sum over readers is one direction for each position of the stream. Layer by layer from
the last, each head and MLP whose product with its demand is large is *traced*: what it reads adds
to the demands before it. Demands are kept in two parts: those that lead to the logits through
values and MLPs alone, and those through one score. What queries and keys read is traced for the
first part only, so that each path has at most one score: otherwise all that a head writes would be
counted three times at each head that it passes.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, islice

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from analyses.methods.frozen import Branch, Directions, FrozenModel, Reading

SCORES = ("q", "k")
"""What a head reads for its scores."""
LISTED = 0.2
"""Edges are listed from this share of the threshold of nodes on."""
GROWTH = 1.5
"""The factor of the threshold while too many nodes are above it."""
STEPS = 200
"""Largest number of steps of the search for single paths."""
Node = tuple[int, int]
"""A writer and a position; the logits have the number of all writers."""
Route = tuple[tuple[Node, str], ...]
"""A path from the logits upstream: nodes, each with the letter by which the one before reads it."""
Effects = Float[Tensor, " answer"]
Parts = Float[Tensor, "part answer writer pos"]


@dataclass(frozen=True, eq=False)
class Edge:
    """What a reader reads from a writer at a position.

    Attributes:
        writer: the writer and its position.
        reader: the reader and the position that it writes at.
        letter: ``q``, ``k`` or ``v`` of a head; ``""`` of an MLP and the logits.
        effect: its contribution to each answer.
    """

    writer: Node
    reader: Node
    letter: str
    effect: Effects


@dataclass(frozen=True, eq=False)
class Sum:
    """All that a reader reads: the terms that are listed as edges, biases and the rest."""

    reader: Node
    letter: str
    total: Effects
    listed: Effects
    bias: Effects


@dataclass(eq=False)
class Trace:
    """What tracing found.

    Attributes:
        threshold: the contribution from which nodes were traced.
        nodes: the contribution of each node through the readers that were traced.
        traced: the nodes whose readings are listed.
        edges: the listed edges.
        sums: what each reader reads in all.
    """

    threshold: float
    nodes: dict[Node, Effects] = field(default_factory=dict[Node, Tensor])
    traced: list[Node] = field(default_factory=list[Node])
    edges: list[Edge] = field(default_factory=list[Edge])
    sums: list[Sum] = field(default_factory=list[Sum])


class Tracer:
    """Traces the answers of one run.

    Args:
        frozen: the run.
        direction: the direction of the final norm's output for each answer.
        pos: the position whose logits are read.
        scores: whether queries and keys are traced.
    """

    def __init__(
        self, frozen: FrozenModel, direction: Directions, pos: int, *, scores: bool
    ) -> None:
        self.frozen, self.scores = frozen, scores
        self.is_bias = direction.new_tensor([p.kind == "bias" for p in frozen.parts]).bool()
        self.logits: Node = (len(frozen.parts), pos)
        self.of_logits = frozen.read_by_logits(direction, pos)

    def large_nodes(self, least: float, most: int) -> tuple[set[Node], float]:
        """The nodes that contribute much to the first answer, and how much that is.

        It is at least a share of the largest direct term; if more nodes than ``most`` contribute
        so much, it is raised until they do not.
        """
        direct = self.of_logits.terms[0, ~self.is_bias]
        threshold = least * float(direct.abs().max())
        while True:
            walk = self._walk(
                lambda _, parts, at=threshold: _is_large(parts[:, 0].abs().amax(0), at), {}
            )
            nodes = {node for node, _ in islice(walk, most + 1)}
            if len(nodes) <= most:
                return nodes, threshold
            threshold *= GROWTH

    def trace(self, nodes: Collection[Node], threshold: float) -> Trace:
        """The trace in which some nodes are traced; edges are listed from a threshold on."""
        trace, effects = Trace(threshold), dict[int, Tensor]()

        def is_chosen(branch: Branch, parts: Tensor) -> Tensor:
            mask = torch.zeros(parts.shape[2:], dtype=torch.bool)
            for writer, pos in nodes:
                if writer in branch.writers:
                    mask[writer - branch.writers.start, pos] = True
            return mask

        self._note(trace, self.logits, [self.of_logits])
        for node, readings in self._walk(is_chosen, effects):
            trace.traced.append(node)
            self._note(trace, node, readings)
        for node in dict.fromkeys([*trace.traced, *(edge.writer for edge in trace.edges)]):
            trace.nodes[node] = effects[node[0]][:, node[1]]
        return trace

    def _walk(
        self, is_traced: Callable[[Branch, Parts], Tensor], effects: dict[int, Tensor]
    ) -> Iterator[tuple[Node, list[Reading]]]:
        """Each node that is traced with its readings, last layer first.

        Args:
            is_traced: from a sub-layer and what its writers contribute at each position, by both
                parts of the demand, the mask of those that are traced.
            effects: filled with the contribution of each writer at each position.
        """
        frozen, of_logits = self.frozen, self.of_logits
        shape = (2, len(of_logits.bias), *frozen.vectors.shape[1:])
        demand = frozen.vectors.new_zeros(shape)
        demand[0][:, of_logits.pos] += of_logits.direction
        for before in sorted({branch.before for branch in frozen.branches}, reverse=True):
            added = torch.zeros_like(demand)
            for branch in (each for each in frozen.branches if each.before == before):
                parts = _contributions(frozen, branch.writers, demand)
                effects |= dict(zip(branch.writers, parts.sum(0).unbind(1), strict=True))
                for row, pos in is_traced(branch, parts).nonzero().tolist():
                    node = (branch.writers[row], pos)
                    if readings := self._expand(node, demand[:, :, pos], added):
                        yield node, readings
            demand += added
        others = [n for n in range(len(frozen.parts)) if n not in effects]
        parts = _contributions(frozen, others, demand)
        effects |= dict(zip(others, parts.sum(0).unbind(1), strict=True))

    def _expand(
        self,
        node: Node,
        demand: Float[Tensor, "part answer d_model"],
        added: Float[Tensor, "part answer pos d_model"],
    ) -> list[Reading]:
        """What a node reads, which is added to the demands of earlier nodes."""
        readings = self.frozen.readings(*node, demand[0], scores=self.scores)
        if not readings:
            return []
        first, *scores = readings
        added[0][:, first.pos] += first.direction
        if demand[1].any():
            (after_score,) = self.frozen.readings(*node, demand[1], scores=False)
            added[1][:, first.pos] += after_score.direction
            first = first.plus(after_score)
        for reading in scores:
            added[1][:, reading.pos] += reading.direction
        return [first, *scores]

    def _note(self, trace: Trace, node: Node, readings: Sequence[Reading]) -> None:
        """Add the edges into a node, and their sums."""
        for reading in readings:
            biases = self.is_bias[: reading.terms.shape[1]]
            listed = torch.zeros_like(reading.bias)
            for source, effect, _ in self._large(reading, trace.threshold):
                listed = listed + effect
                trace.edges.append(Edge(source, node, reading.letter, effect))
            bias = reading.bias + reading.terms[:, biases].sum((1, 2))
            trace.sums.append(Sum(node, reading.letter, reading.total, listed, bias))

    def _large(
        self, reading: Reading, threshold: float
    ) -> Iterator[tuple[Node, Effects, Directions]]:
        """The writers and positions with large terms, and the direction that each is read along."""
        biases = self.is_bias[: reading.terms.shape[1]]
        large = _is_large(reading.terms[0].abs(), LISTED * threshold) & ~biases[:, None]
        for writer, column in large.nonzero().tolist():
            node = (writer, int(reading.pos[column]))
            yield node, reading.terms[:, writer, column], reading.direction[:, column]

    # ---- single paths --------------------------------------------------------------------------

    def strongest_paths(self, nodes: Collection[Node], threshold: float, most: int) -> list[Route]:
        """Paths to the logits from embeddings or nodes that are not traced, by the first answer.

        Of the unfinished paths, the one with the largest contribution is prolonged first, until
        ``most`` are finished or :data:`STEPS` steps are taken.
        """
        order, heap, finished = count(), list[tuple[float, int, Route, Tensor]](), list[Route]()

        def prolong(route: Route, reading: Reading) -> None:
            for node, effect, direction in self._large(reading, threshold):
                longer = (*route, (node, reading.letter))
                heappush(heap, (-abs(float(effect[0])), next(order), longer, direction))

        prolong(((self.logits, ""),), self.of_logits)
        for _ in range(STEPS):
            if not heap or len(finished) == most:
                break
            *_, route, direction = heappop(heap)
            node, _ = route[-1]
            if node not in nodes:
                finished.append(route)
                continue
            for reading in self._read_on(route, direction):
                prolong(route, reading)
        return finished

    def along(self, routes: Sequence[Route]) -> list[Effects]:
        """The contribution of single paths to all answers."""
        readings: dict[Route, list[Reading]] = {((self.logits, ""),): [self.of_logits]}
        effects: list[Tensor] = []
        for route in routes:
            effect = self.of_logits.total
            for n in range(1, len(route)):
                (writer, pos), letter = route[n]
                reading = next(each for each in readings[route[:n]] if each.letter == letter)
                column = int((reading.pos == pos).nonzero())
                effect = reading.terms[:, writer, column]
                if n < len(route) - 1 and route[: n + 1] not in readings:
                    direction = reading.direction[:, column]
                    readings[route[: n + 1]] = self._read_on(route[: n + 1], direction)
            effects.append(effect)
        return effects

    def _read_on(self, route: Route, direction: Directions) -> list[Reading]:
        """What the first node of a path reads for it."""
        has_score = any(letter in SCORES for _, letter in route)
        return self.frozen.readings(*route[-1][0], direction, scores=self.scores and not has_score)


def _is_large(sizes: Tensor, threshold: float) -> Tensor:
    """Which sizes reach a threshold, and are above what some kernels of float32 round to 0."""
    return sizes >= max(threshold, torch.finfo(torch.float32).tiny)


def _contributions(
    frozen: FrozenModel, writers: Sequence[int], demand: Float[Tensor, "part answer pos d_model"]
) -> Parts:
    """The products of what writers add to the stream with both parts of the demand."""
    vectors = frozen.vectors[[*writers]]
    return einsum(vectors, demand, "w pos m, part answer pos m -> part answer w pos")
