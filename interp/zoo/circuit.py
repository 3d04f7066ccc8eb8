"""Which parts of a model do the work? Known where the weights were set, and not found by training.

Nodes are ``embed``, ``pos_embed``, heads ``L0H1``, MLPs ``L0MLP`` and ``logits``. An edge ends in
what reads it: ``L0H1.q``, ``L0H1.k``, ``L0H1.v``, ``L0MLP``, ``logits``. There is an edge exactly
where what one node writes into the stream is read by another, so that nothing which is not
an edge carries anything (Conmy et al. 2023, "Towards Automated Circuit Discovery").
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Truth:
    """The circuit of a model whose weights were set.

    Attributes:
        heads: those that do something, such as ``L0H1``.
        mlps: those that do something, such as ``L0MLP``.
        edges: pairs of what writes and what reads.
    """

    heads: tuple[str, ...]
    mlps: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Truth":
        """From JSON's lists."""
        edges = tuple((str(source), str(target)) for source, target in fields["edges"])
        return cls(tuple(fields["heads"]), tuple(fields["mlps"]), edges)

    def __str__(self) -> str:
        edges = ", ".join(f"{source} → {target}" for source, target in self.edges)
        mlps = f" MLPs: {', '.join(self.mlps)}." if self.mlps else ""
        return f"Heads: {', '.join(self.heads)}.{mlps} Edges: {edges}."
