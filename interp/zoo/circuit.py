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
    """The edges that change the logits on the card's minimal pairs when each is ablated alone.

    Attributes:
        resample: edges that do so when their value on the corrupted prompt replaces the clean one.
        mean: likewise, with the mean over all tokens of the clean prompts.
        zero: likewise, with zero.
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
        live: the edges that change the logits when each is ablated alone; ``None`` if not measured.
    """

    heads: tuple[str, ...]
    mlps: tuple[str, ...]
    edges: Edges
    live: LiveEdges | None = None

    def __str__(self) -> str:
        edges = ", ".join(f"{source} → {target}" for source, target in self.edges)
        mlps = f" MLPs: {', '.join(self.mlps)}." if self.mlps else ""
        return f"Heads: {', '.join(self.heads)}.{mlps} Edges: {edges}."
