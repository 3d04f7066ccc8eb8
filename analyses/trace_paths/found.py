"""The trace of one prompt with names and numbers, and what removals of its parts change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import nan
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.attribution import TokenLogits, logit_direction, places_of_logits
from analyses.methods.finite import check_total
from analyses.methods.frozen import FrozenModel, places_of_run
from analyses.trace_paths.removal import Removed
from analyses.trace_paths.traced import Edge, Node, Route, Sum, Tracer
from interp import Transformer, run
from interp.model import Batch, unembedding_of

LOGITS = "logits"
Names = tuple[str, str]
"""Writer and reader of an edge: ``("L0H0@3", "L1H0.k@5")``."""


@dataclass(frozen=True)
class PathNode:
    """A part of the model at a position.

    Attributes:
        prompt: the index of its prompt.
        name: its name, such as ``L1H0@5``, ``L0MLP@2``, ``embed@2`` or ``logits@5``.
        kind: ``embedding``, ``head``, ``mlp`` or ``logits``.
        layer: index of its block, or ``None``.
        head: index of the head, or ``None``.
        pos: the position that it writes at.
        token: label of the token there.
        effect: what it contributes to the answer through the nodes that are traced.
        control: mean |effect| for random tokens in place of the answer.
        exact: what the answer loses if it is removed; NaN if that was not measured.
        is_traced: whether what it reads is listed.
    """

    prompt: int
    name: str
    kind: str
    layer: int | None
    head: int | None
    pos: int
    token: str
    effect: float
    control: float
    exact: float
    is_traced: bool


@dataclass(frozen=True)
class ReadSum:
    """All that a node reads by one letter.

    Attributes:
        prompt: the index of its prompt.
        name: the name of the reader, with the letter.
        effect: the sum of all that it reads, biases included.
        listed: the sum of the edges that are listed.
        bias: the terms of biases.
    """

    prompt: int
    name: str
    effect: float
    listed: float
    bias: float

    @property
    def rest(self) -> float:
        """The terms that are not listed."""
        return self.effect - self.listed - self.bias


@dataclass(frozen=True, eq=False)
class Found:
    """The trace of one prompt; effects with their controls. See :class:`analyses.TracedPaths`."""

    value: Float[Tensor, " row"]
    nodes: tuple[PathNode, ...]
    edges: tuple[Names, ...]
    effects: Float[Tensor, "edge two"]
    exact: Float[Tensor, " edge"]
    paths: tuple[tuple[Names, ...], ...]
    path_effects: Float[Tensor, "path two"]
    sums: tuple[ReadSum, ...]


class Question(NamedTuple):
    """What is asked of one prompt.

    Attributes:
        number: index of the prompt.
        column: the column whose logits are read.
        ids: the target and the distractor, if there is one; then the same for random answers.
    """

    number: int
    column: Int[Tensor, " row"]
    ids: Int[Tensor, "token answer"]


class PromptTrace:
    """The trace of one prompt.

    Args:
        model: the model.
        batch: the prompt.
        asked: the answer.
        scores: whether what queries and keys read is traced.
        least: the share of the largest direct term from which nodes are traced.
        most: the largest number of traced nodes.
        paths: the largest number of single paths.

    Raises:
        InvalidInput: the answer is not finite.
    """

    @torch.no_grad()
    def __init__(  # noqa: PLR0913 - the settings of the analysis
        self,
        model: Transformer,
        batch: Batch,
        asked: Question,
        *,
        scores: bool,
        least: float,
        most: int,
        paths: int,
    ) -> None:
        cache = run(model, batch, record=[*places_of_run(model), *places_of_logits(model)]).cache
        self.number, self.batch = asked.number, batch
        self.value = TokenLogits(model, cache, asked.column, asked.ids[:, :1]).values()
        problem = f"The answer of prompt {self.number} is NaN or infinite, so no paths sum to it"
        check_total(self.value, cache, problem)
        real = batch.is_real[0].nonzero()[:, 0]
        self.pos = int((real == asked.column).nonzero())
        self.frozen = FrozenModel(model, cache, real)
        directions, bias = logit_direction(unembedding_of(model), *asked.ids)
        self.bias = sum(float(term[0]) for term in bias.values())
        first = Tracer(self.frozen, directions[:1], self.pos, scores=scores)
        chosen, threshold = first.large_nodes(least, most)
        tracer = Tracer(self.frozen, directions, self.pos, scores=scores)
        self.trace = tracer.trace(chosen, threshold)
        self.trace.edges.sort(key=lambda edge: -abs(float(edge.effect[0])))
        routes = first.strongest_paths(chosen, threshold, paths)
        self.routes = sorted(
            zip(routes, tracer.along(routes), strict=True), key=lambda r: -abs(float(r[1][0]))
        )
        self.tokens = labels_of(model, batch, real)

    def cells(self) -> dict[str, tuple[Removed, float]]:
        """What can be removed, and what it contributes, by name: nodes, then edges."""
        nodes = {
            self._name(node): (Removed(node), float(effect[0]))
            for node, effect in self.trace.nodes.items()
        }
        return nodes | {
            edge_name(self._edge(e)): (Removed(e.writer, e.reader, e.letter), float(e.effect[0]))
            for e in self.trace.edges
        }

    def found(self, exact: Mapping[str, float]) -> Found:
        """The trace with names, and what was measured of its parts."""
        trace, edges = self.trace, [self._edge(edge) for edge in self.trace.edges]
        measured = [exact.get(edge_name(edge), nan) for edge in edges]
        nodes = [
            self._node(node, effect, exact.get(self._name(node), nan))
            for node, effect in trace.nodes.items()
        ]
        total = trace.sums[0].total
        nodes.append(self._node(self._logits, total + self.bias, nan))
        return Found(
            value=self.value,
            nodes=tuple(nodes),
            edges=tuple(edges),
            effects=_both([edge.effect for edge in trace.edges]),
            exact=torch.tensor(measured, dtype=torch.float64),
            paths=tuple(self._path(route) for route, _ in self.routes),
            path_effects=_both([effect for _, effect in self.routes]),
            sums=tuple(self._sum(each) for each in trace.sums),
        )

    # ---- names ---------------------------------------------------------------------------------

    @property
    def _logits(self) -> Node:
        return len(self.frozen.parts), self.pos

    def _name(self, node: Node, letter: str = "") -> str:
        writer, pos = node
        part = LOGITS if node == self._logits else self.frozen.parts[writer].name
        return f"{part}{f'.{letter}' if letter else ''}@{pos}"

    def _edge(self, edge: Edge) -> Names:
        return self._name(edge.writer), self._name(edge.reader, edge.letter)

    def _path(self, route: Route) -> tuple[Names, ...]:
        """The edges of a path, that from its first node first."""
        pairs = list(pairwise(route))
        return tuple(
            (self._name(source), self._name(reader, letter))
            for (reader, _), (source, letter) in reversed(pairs)
        )

    def _node(self, node: Node, effect: Tensor, exact: float) -> PathNode:
        (writer, pos), is_logits = node, node == self._logits
        part = None if is_logits else self.frozen.parts[writer]
        return PathNode(
            prompt=self.number,
            name=self._name(node),
            kind=LOGITS if part is None else part.kind,
            layer=None if part is None else part.layer,
            head=None if part is None else part.head,
            pos=pos,
            token=self.tokens[pos],
            effect=float(effect[0]),
            control=float(effect[1:].abs().mean()),
            exact=exact,
            is_traced=is_logits or node in self.trace.traced,
        )

    def _sum(self, read: Sum) -> ReadSum:
        bias = self.bias if read.reader == self._logits else 0.0
        return ReadSum(
            prompt=self.number,
            name=self._name(read.reader, read.letter),
            effect=float(read.total[0]) + bias,
            listed=float(read.listed[0]),
            bias=float(read.bias[0]) + bias,
        )


def edge_name(edge: Names) -> str:
    """The name of an edge: its writer and its reader."""
    return " → ".join(edge)


def labels_of(model: Transformer, batch: Batch, real: Int[Tensor, " pos"]) -> list[str]:
    """The label of the token at each position; of an image patch, its number."""
    if batch.images is not None:
        return [str(number) for number in range(len(real))]
    return [*model.to_labels(batch.ids[0, real])]


def _both(effects: Sequence[Tensor]) -> Float[Tensor, "cell two"]:
    """Contributions to the answer, and the mean size of those to random answers."""
    table = torch.stack([*effects]).double() if effects else torch.zeros(0, 2).double()
    return torch.stack([table[:, 0], table[:, 1:].abs().mean(1)], 1)
