"""Nodes and edges of a pruned graph by name.

A name has the kind of its node, so no two nodes share one: ``L3N12@5`` is neuron 12 of layer 3 at
position 5, ``L3F12@5`` feature 12, ``L3H2@5`` head 2, ``L3MLP@5`` a whole MLP, ``L3error@5`` an
error, ``embed@5`` an embedding and ``logit ·is@5`` the logit of a token by its label (``logit
17@5`` without a tokenizer; if two logits have one label, their ids follow). ``bias`` is all biases
together, ``rest`` all that is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import nan

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.attribution_graph.carriers import Cells, parts_of_edges, sums_of_carriers
from analyses.attribution_graph.filling import Filled
from analyses.attribution_graph.influence import Edges, Ends, effects, influence
from analyses.attribution_graph.rows import Readers, Rows

LETTERS = {"neuron": "N", "feature": "F", "head": "H", "mlp": "MLP"}
"""How each kind of unit is called in names."""


@dataclass(frozen=True)
class GraphNode:
    """A node of an attribution graph.

    Attributes:
        name: its name.
        kind: ``embedding``, ``error``, ``bias``, ``rest``, ``neuron``, ``feature``, ``head``,
            ``mlp`` or ``logit``.
        layer: its layer; ``None`` for embeddings, logits, biases and the rest.
        neuron: the index of a neuron or a feature in its layer; ``None`` for other nodes.
        head: the index of a head in its layer; ``None`` for other nodes.
        pos: its position; ``None`` for biases and the rest.
        token: the label of the token there; of a logit, that of its token.
        activation: what a unit writes with, of a head or an MLP the norm of what it writes; NaN
            for other nodes.
        value: what it reads, to which its edges sum; NaN for nodes that read nothing. Of a head or
            an MLP, in logits: all that it contributes to the answer, by every route; where that
            cancels, the sum with the sizes of what units contribute.
        influence: the share of the logits that comes through it, by sizes of edges.
        effect: what it contributes to the answer through the graph, with its sign, in logits: by
            the graph, what the answer loses without it.
        exact: what the answer loses if the unit is set to zero; NaN if that was not measured.
        exact_frozen: the same with all patterns as they were.
        promoted_tokens: labels of the tokens whose logits a unit raises most, through the final
            norm alone; empty for other nodes.
    """

    name: str
    kind: str
    layer: int | None = None
    neuron: int | None = None
    head: int | None = None
    pos: int | None = None
    token: str = ""
    activation: float = nan
    value: float = nan
    influence: float = 0.0
    effect: float = 0.0
    exact: float = nan
    exact_frozen: float = nan
    promoted_tokens: str = ""


@dataclass(frozen=True, eq=False)
class Placed:
    """Where the nodes of a graph are, by their numbers.

    Attributes:
        filled: the graph before pruning.
        rows: computes rows; its units have the places of nodes.
        pos: the position of the logits.
        ids: the tokens of the logits.
        start: the share of each logit.
    """

    filled: Filled
    rows: Rows
    pos: int
    ids: Int[Tensor, " logit"]
    start: Float[Tensor, " logit"]

    @property
    def first_logit(self) -> int:
        """The number of the first logit."""
        return self.filled.n - self.filled.n_logits

    @property
    def ends(self) -> Ends:
        """Which nodes are special."""
        filled, numbers = self.filled, torch.arange(self.filled.n)
        columns = filled.columns
        start = torch.zeros(filled.n, dtype=torch.float64)
        start[self.first_logit :] = self.start
        return Ends(
            start,
            is_unit=(numbers > filled.rest) & (numbers < self.first_logit),
            is_token=numbers < columns.n_pos,
            is_error=(numbers >= columns.n_pos) & (numbers < columns.bias),
            rest=filled.rest,
        )

    def unit(self, number: int) -> tuple[int, int]:
        """The index of a unit's branch, and its index among the active units there."""
        column = int(self.filled.units[number - self.filled.rest - 1])
        at = column - self.filled.columns.first_unit
        for branch, units in self.rows.units.items():
            if at < units.n:
                return branch, at
            at -= units.n
        raise IndexError(f"There is no unit {number}.")

    def readers(self, numbers: Int[Tensor, " target"], logits: Readers) -> Readers:
        """What units and logits read: units first, then logits, as they are numbered."""
        device = logits.pos.device
        units = numbers[numbers < self.first_logit] - self.filled.rest - 1
        of_units = self.rows.readers(self.filled.units[units].to(device))
        at = (numbers[numbers >= self.first_logit] - self.first_logit).to(device)
        return Readers.joined([of_units, logits.only(at)])


def nodes_of(
    placed: Placed, edges: Edges, tokens: Sequence[str], labels: Sequence[str]
) -> dict[int, GraphNode]:
    """The nodes that have edges, and all logits, by their numbers.

    Args:
        placed: where the nodes are.
        edges: the edges of the pruned graph.
        tokens: the label of each position.
        labels: the label of each logit's token.
    """
    start = placed.ends.start
    reading = torch.where(start > 0, 1.0, placed.filled.reading)
    reading[placed.first_logit :] = 1.0
    by_size, by_sign = influence(edges, start) + start, effects(edges, start, reading)
    logits = torch.arange(placed.first_logit, placed.filled.n)
    numbers = torch.cat([edges.source, edges.target, logits]).unique().tolist()
    described = {number: _described(placed, number, tokens, labels) for number in numbers}
    return {
        number: replace(node, influence=float(by_size[number]), effect=float(by_sign[number]))
        for number, node in described.items()
    }


def _described(
    placed: Placed, number: int, tokens: Sequence[str], labels: Sequence[str]
) -> GraphNode:
    """A node with its name, place, activation and reading."""
    columns, rest = placed.filled.columns, placed.filled.rest
    value, pos = float(placed.filled.reading[number]), placed.pos
    if number >= placed.first_logit:
        logit = number - placed.first_logit
        distinct = f"({int(placed.ids[logit])})" if len({*labels}) < len(labels) else ""
        name = f"logit {labels[logit]}{distinct}@{pos}"
        return GraphNode(name, "logit", pos=pos, token=labels[logit], value=value)
    if number > rest:
        return _unit(placed, number, tokens, value)
    if number >= columns.bias:
        kind = "rest" if number == rest else "bias"
        return GraphNode(kind, kind)
    row, pos = divmod(number, columns.n_pos)
    if not row:
        return GraphNode(f"embed@{pos}", "embedding", pos=pos, token=tokens[pos])
    layer = columns.errors[row - 1]
    return GraphNode(f"L{layer}error@{pos}", "error", layer, pos=pos, token=tokens[pos])


def _unit(placed: Placed, number: int, tokens: Sequence[str], value: float) -> GraphNode:
    branch, at = placed.unit(number)
    units = placed.rows.units[branch]
    which = torch.tensor([at], device=placed.rows.frozen.real.device)
    pos, index = (int(place) for place in units.places(which))
    is_head, is_mlp = units.kind == "head", units.kind == "mlp"
    return GraphNode(
        f"L{units.layer}{LETTERS[units.kind]}{'' if is_mlp else index}@{pos}",
        units.kind,
        units.layer,
        neuron=None if is_head or is_mlp else index,
        head=index if is_head else None,
        pos=pos,
        token=tokens[pos],
        activation=float(units.activation(which)),
        value=value,
    )


def terms_of(placed: Placed, edges: Edges, logits: Readers) -> Float[Tensor, "edge carrier"]:
    """Each edge split by the heads that carry it, and the bypass."""
    rows, filled = placed.rows, placed.filled
    if len(rows.carriers) == 1:
        return edges.weight[:, None]
    targets, reader = edges.target.unique(return_inverse=True)
    readers = placed.readers(targets, logits)
    terms = torch.zeros(len(edges.target), len(rows.carriers), dtype=torch.float64)
    is_rest = edges.source == filled.rest
    listed = ~is_rest
    column_of = torch.cat(
        [torch.arange(filled.columns.first_unit), torch.tensor([-1]), filled.units]
    )
    cells = Cells(reader[listed], column_of[edges.source[listed]])
    terms[listed] = parts_of_edges(rows, readers, cells)
    left = sums_of_carriers(rows, readers)
    left.index_add_(0, cells.reader, terms[listed], alpha=-1.0)
    terms[is_rest] = left[reader[is_rest]]
    return terms
