"""The circuit of a model whose weights were set and not trained, as data.

Nodes are ``embed``, ``pos_embed``, heads ``L0H1``, MLPs ``L0MLP`` and ``logits``. The target of an
edge is an input of a node: ``L0H1.q``, ``L0H1.k``, ``L0H1.v``, ``L0MLP``, ``logits``. There is an
edge exactly where the input's weights read a direction of the residual stream that the source
writes, so no other pair of nodes interacts directly (Conmy et al. 2023, "Towards Automated Circuit
Discovery").
"""

from dataclasses import dataclass

Edges = tuple[tuple[str, str], ...]
"""Pairs (source node, target input)."""


@dataclass(frozen=True)
class LiveEdges:
    """The edges that change the logits when each alone carries something else.

    Attributes:
        resample: on the card's minimal pairs, what it carries on the corrupted prompt.
        mean: the mean over all tokens of their clean prompts.
        zero: nothing.
    """

    resample: Edges
    mean: Edges
    zero: Edges


@dataclass(frozen=True)
class Circuit:
    """The nodes and edges of a circuit.

    Attributes:
        heads: heads with nonzero weights, such as ``L0H1``.
        mlps: MLPs with nonzero weights, such as ``L0MLP``.
        edges: pairs (source node, target input).
        live: those of the edges that change the logits by themselves.
    """

    heads: tuple[str, ...]
    mlps: tuple[str, ...]
    edges: Edges
    live: LiveEdges | None = None

    def __str__(self) -> str:
        edges = ", ".join(f"{source} → {target}" for source, target in self.edges)
        mlps = f" MLPs: {', '.join(self.mlps)}." if self.mlps else ""
        return f"Heads: {', '.join(self.heads)}.{mlps} Edges: {edges}."
