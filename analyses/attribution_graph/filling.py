"""Which units become nodes: rows are computed in order of influence, and only these are stored.

The rows of the logits come first. Then, batch by batch, those of the units with the most influence
by the rows so far, as circuit-tracer does (Ameisen et al. 2025, "Circuit Tracing"). Of a row, the
entries below :data:`STORED` of the sum of its sizes are added together as its rest, so that a row
takes no more than 1 / STORED entries, however long the prompt.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.attribution_graph.influence import Edges, with_rest
from analyses.attribution_graph.rows import Columns, Readers, Rows
from interp.io import Progress, check_cancelled

STORED = 1e-4
"""The share of a row from which an entry is stored."""
BATCH_BYTES = 2**26
"""The most bytes of the rows that are computed together."""
MOST_TOGETHER = 32
"""The most rows that are computed together, so that the order of influence is followed."""
ENTRY_BYTES = 32
"""Of a stored entry: target, source, weight and share."""


def bytes_of_rows(n_rows: int, n_columns: int) -> int:
    """The most bytes that the stored rows take, and the batch that is computed."""
    stored = n_rows * min(n_columns, int(1 / STORED)) * ENTRY_BYTES
    return stored + max(BATCH_BYTES, n_columns * 8)


@dataclass(frozen=True, eq=False)
class Filled:
    """A graph before it is pruned.

    Nodes are numbered: embeddings, errors, the bias (as the columns of :class:`Columns`), the rest,
    units in the order of the forward, logits.

    Attributes:
        columns: what the sources of rows are.
        units: the column of each unit that is a node.
        edges: the edges; rows sum to the readings of their targets.
        reading: what each unit and logit reads; 0 for other nodes.
        n_logits: number of logits.
    """

    columns: Columns
    units: Int[Tensor, " unit"]
    edges: Edges
    reading: Float[Tensor, " node"]
    n_logits: int

    @property
    def rest(self) -> int:
        """The number of the rest."""
        return self.columns.first_unit

    @property
    def n(self) -> int:
        """The number of nodes."""
        return len(self.reading)


class Filling:
    """Fills rows in order of influence.

    Args:
        rows: computes rows.
        logits: what the logits read.
        start: p, the share of each logit.
    """

    def __init__(self, rows: Rows, logits: Readers, start: Float[Tensor, " logit"]) -> None:
        self.rows, self.start = rows, start.double().cpu()
        self.columns = rows.columns
        self._readers: list[Tensor] = []
        self._sources: list[Tensor] = []
        self._weights: list[Tensor] = []
        self._shares: list[Tensor] = []
        self._readings: list[Tensor] = []
        self.units = torch.zeros(0, dtype=torch.long)
        self._store(rows.of(logits), 0)

    def fill(self, most: int, progress: Progress | None = None) -> None:
        """Fill the rows of up to ``most`` units, and report how many have one.

        Raises:
            Cancelled: the work was cancelled between two batches of rows.
        """
        together = min(MOST_TOGETHER, max(1, BATCH_BYTES // (8 * self.columns.n)))
        while len(self.units) < most:
            candidates = self.influence()[self.columns.first_unit :]
            candidates[self.units - self.columns.first_unit] = 0.0
            n = min(together, most - len(self.units), int((candidates > 0).sum()))
            if not n:
                return
            chosen = candidates.topk(n).indices + self.columns.first_unit
            first = len(self.start) + len(self.units)
            self.units = torch.cat([self.units, chosen])
            at = self.rows.readers(chosen.to(self.rows.frozen.vectors.device))
            self._store(self.rows.of(at), first)
            check_cancelled()
            if progress is not None:
                progress(len(self.units), most)

    def influence(self) -> Float[Tensor, " column"]:
        """The influence of each source by the rows so far."""
        readers, sources, shares = map(torch.cat, (self._readers, self._sources, self._shares))
        n_logits = len(self.start)
        step = torch.cat([self.start, torch.zeros(len(self.units), dtype=torch.float64)])
        total = torch.zeros(self.columns.n, dtype=torch.float64)
        while bool(step.any()):
            reached = torch.zeros_like(total).index_add(0, sources, shares * step[readers])
            total += reached
            step = torch.zeros_like(step)
            step[n_logits:] = reached[self.units]
        return total

    def filled(self) -> Filled:
        """The graph of the units that have rows."""
        columns, n_logits = self.columns, len(self.start)
        order = self.units.argsort()
        n_units = len(self.units)
        first = columns.first_unit + 1
        number = torch.full((columns.n,), -1)
        number[: columns.first_unit] = torch.arange(columns.first_unit)
        number[self.units[order]] = first + torch.arange(n_units)
        of_reader = torch.cat([first + n_units + torch.arange(n_logits), number[self.units]])
        readers, sources, weights, shares = map(
            torch.cat, (self._readers, self._sources, self._weights, self._shares)
        )
        edges = Edges(of_reader[readers], number[sources], weights, shares)
        readings = torch.cat(self._readings)
        everything = torch.zeros(first + n_units + n_logits, dtype=torch.float64)
        everything[of_reader] = readings
        is_listed = edges.source >= 0
        listed = edges.only(is_listed)
        zeros = torch.zeros_like(everything)
        weight = everything - zeros.index_add(0, listed.target, listed.weight)
        share = zeros.index_fill(0, of_reader, 1.0)
        share = share - zeros.index_add(0, listed.target, listed.share)
        left = Edges(of_reader, torch.zeros_like(of_reader), weight[of_reader], share[of_reader])
        some = left.share > 1e-12  # noqa: PLR2004 - rounding of a sum of shares
        edges = with_rest(listed, left.only(some), columns.first_unit)
        return Filled(columns, self.units[order], edges, everything, n_logits)

    def _store(self, rows: Float[Tensor, "row column"], first: int) -> None:
        """Store the large entries of rows whose readers are numbered from ``first``."""
        rows = rows.double().cpu()
        sizes = rows.abs()
        shares = sizes / sizes.sum(1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
        row, source = (shares >= STORED).nonzero().unbind(1)
        self._readers.append(row + first)
        self._sources.append(source)
        self._weights.append(rows[row, source])
        self._shares.append(shares[row, source])
        self._readings.append(rows.sum(1))
