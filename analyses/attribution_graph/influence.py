"""How much of the logits comes through each node, and which nodes and edges are enough.

    influence = p·(Â + Â² + …)         Â = |A|, each row divided by its sum;  p: the logits' shares

The series ends, as no node reads a later one. What rows read of sources that are no nodes, and of
edges that are left out, is the source *rest*: shares of a row, the rest included, sum to 1.
(Ameisen et al. 2025, "Circuit Tracing"; there, what is left out is no node, and rows are divided by
what remains.)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

NAMES = ("target", "source", "weight", "share")
Numbers = Float[Tensor, " node"]


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of a graph of some nodes.

    Attributes:
        target: the node that reads, by its number.
        source: the node that is read.
        weight: what it contributes to the target's reading.
        share: its size as a share of the sizes of all that the target reads.
    """

    target: Int[Tensor, " edge"]
    source: Int[Tensor, " edge"]
    weight: Float[Tensor, " edge"]
    share: Float[Tensor, " edge"]

    def only(self, which: Bool[Tensor, " edge"] | Int[Tensor, " chosen"]) -> "Edges":
        """Some of the edges: those of a mask, or those of these indices in their order."""
        return Edges(*(getattr(self, name)[which] for name in NAMES))

    def in_order(self) -> "Edges":
        """The edges of the last target first, the largest of each target first."""
        by_share = self.share.argsort(descending=True, stable=True)
        by_target = self.target[by_share].argsort(descending=True, stable=True)
        return self.only(by_share[by_target])


def influence(edges: Edges, start: Numbers) -> Numbers:
    """The influence of each node on the logits, without the share that logits have of their own.

    Args:
        edges: the edges.
        start: p, which is 0 but for logits.
    """
    total, step = torch.zeros_like(start), start
    while bool(step.any()):
        step = torch.zeros_like(start).index_add(0, edges.source, edges.share * step[edges.target])
        total = total + step
    return total


def effects(edges: Edges, start: Numbers, reading: Numbers, clamped: Sequence[int] = ()) -> Numbers:
    """What each node contributes to Σ p·logit through all paths of the graph, with its sign.

    A change of what a unit reads changes its activation in proportion, and so all that it writes.

    Args:
        edges: the edges.
        start: p, which is 0 but for logits.
        reading: what each unit reads; 1 for logits, whose edges are in their unit already.
        clamped: nodes whose activations are set, so that no path leads through them. Of these,
            the contributions sum to that of all of them together.
    """
    passes = (reading != 0).to(start)
    passes[[*clamped]] = 0.0
    total, step = start, start
    while bool(step.any()):
        proportion = torch.where(passes == 0, 0.0, step / reading)
        passed = edges.weight * proportion[edges.target]
        step = torch.zeros_like(start).index_add(0, edges.source, passed)
        total = total + step
    return total


@dataclass(frozen=True, eq=False)
class Ends:
    """Which nodes are special.

    Attributes:
        start: p, which is 0 but for logits.
        is_unit: whether a node is a unit, which may be pruned.
        is_token: whether it is an embedding.
        is_error: whether it is an error.
        rest: the number of the node of all that is left out.
    """

    start: Numbers
    is_unit: Bool[Tensor, " node"]
    is_token: Bool[Tensor, " node"]
    is_error: Bool[Tensor, " node"]
    rest: int

    @property
    def is_unexplained(self) -> Bool[Tensor, " node"]:
        """Errors and the rest."""
        mask = self.is_error.clone()
        mask[self.rest] = True
        return mask


def pruned(edges: Edges, ends: Ends, node_share: float, edge_share: float) -> Edges:
    """The edges between the nodes that matter; the others are added to the rest of their targets.

    Kept are the units with the largest influence, down to ``node_share`` of the influence of all of
    them; then the largest edges, by share times the influence of their target, down to
    ``edge_share`` of all edges between these nodes. Units that nothing reads, or that read
    nothing, are then removed until there are none. Embeddings, biases and errors stay.
    """
    total = influence(edges, ends.start) + ends.start
    stays = ~ends.is_unit
    units = ends.is_unit.nonzero()[:, 0]
    stays[units[_largest(total[units], node_share)]] = True
    is_rest = edges.source == ends.rest
    mask = stays[edges.target] & stays[edges.source] & ~is_rest
    score = torch.where(mask, edges.share * total[edges.target], 0.0)
    mask = mask.clone()
    large = torch.zeros_like(mask)
    large[_largest(score, edge_share)] = True
    mask &= large
    while True:
        reads, is_read = (
            torch.zeros_like(ends.is_unit).index_fill(0, x[mask], value=True)
            for x in (edges.target, edges.source)
        )
        alive = ~ends.is_unit | (reads & is_read)
        fewer = mask & alive[edges.target] & alive[edges.source]
        if bool((fewer == mask).all()):
            break
        mask = fewer
    reachable = ends.start > 0
    reachable = reachable.index_fill(0, edges.source[mask], value=True)
    return with_rest(edges.only(mask), edges.only(~mask & reachable[edges.target]), ends.rest)


def with_rest(stays: Edges, left_out: Edges, rest: int) -> Edges:
    """Edges, with what others carried as an edge from the rest to each of their targets."""
    targets, row = left_out.target.unique(return_inverse=True)
    zeros = left_out.weight.new_zeros(len(targets))
    lost = Edges(
        targets,
        torch.full_like(targets, rest),
        zeros.index_add(0, row, left_out.weight),
        zeros.index_add(0, row, left_out.share),
    )
    return joined([stays, lost])


def joined(parts: list[Edges]) -> Edges:
    """Edges one after another; the list is emptied, as each may be large."""
    columns = [[getattr(part, x) for part in parts] for x in NAMES]
    parts.clear()
    joined_columns: list[Tensor] = []
    while columns:
        joined_columns.append(torch.cat(columns.pop(0)))
    return Edges(*joined_columns)


def replacement_score(edges: Edges, ends: Ends) -> float:
    """The influence of tokens as a share of that of tokens, errors and the rest."""
    total = influence(edges, ends.start)
    tokens, others = (float(total[x].sum()) for x in (ends.is_token, ends.is_unexplained))
    return tokens / (tokens + others) if tokens + others > 0 else torch.nan


def completeness(edges: Edges, ends: Ends) -> float:
    """The share of what nodes read that is no error and not the rest, weighted by influence."""
    total = influence(edges, ends.start) + ends.start
    is_explained = ~ends.is_unexplained[edges.source]
    weight = total[edges.target] * edges.share
    return float(weight[is_explained].sum() / weight.sum()) if len(weight) else torch.nan


def _largest(sizes: Float[Tensor, " entry"], share: float) -> Int[Tensor, " chosen"]:
    """The fewest largest entries with a share of the sum; none that is 0."""
    order = sizes.argsort(descending=True, stable=True)
    before = sizes[order].cumsum(0) - sizes[order]
    enough = (before < share * sizes.sum()) & (sizes[order] > 0)
    return order[enough]
