"""The circuit of a model whose weights were set and not trained, as data.

Nodes are ``embed``, ``pos_embed``, heads ``L0H1``, MLPs ``L0MLP`` and ``logits``. The target of an
edge is an input of a node: ``L0H1.q``, ``L0H1.k``, ``L0H1.v``, ``L0MLP``, ``logits``. There is an
edge exactly where the input's weights read a direction of the residual stream that the source
writes, so no other pair of nodes interacts directly (Conmy et al. 2023, "Towards Automated Circuit
Discovery").
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Circuit:
    """The nodes and edges of a circuit.

    Attributes:
        heads: heads with nonzero weights, such as ``L0H1``.
        mlps: MLPs with nonzero weights, such as ``L0MLP``.
        edges: pairs (source node, target input).
    """

    heads: tuple[str, ...]
    mlps: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        edges = ", ".join(f"{source} → {target}" for source, target in self.edges)
        mlps = f" MLPs: {', '.join(self.mlps)}." if self.mlps else ""
        return f"Heads: {', '.join(self.heads)}.{mlps} Edges: {edges}."
