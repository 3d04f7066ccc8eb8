"""Which units become nodes: rows are computed in order of influence, and only these are stored.

The rows of the logits come first. Then, batch by batch, those of the units with the most influence
by the rows so far, as circuit-tracer does (Ameisen et al. 2025, "Circuit Tracing"). Of a row, the
entries below :data:`STORED` of the sum of its sizes are added together as its rest, so that a row
takes no more than 1 / STORED entries, however long the prompt. Of graphs of more than 838 rows, the
share from which entries become edges is larger, so that there are no more than :data:`MOST_EDGES`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.attribution_graph.influence import Edges, joined
from analyses.attribution_graph.rows import Columns, Readers, Rows
from interp.io import Progress, check_cancelled, return_freed_memory

STORED = 1e-4
"""The share of a row from which an entry is stored."""
BLOCK = 32
"""Number of rows that are stored together."""
PART = 2**20
"""Number of columns of which entries are compared with the sum of their row at a time."""
MOST_TOGETHER = 32
"""The most rows that are computed together, so that the order of influence is followed."""
MOST_ENTRIES = 2**25
"""The most entries that are stored: of larger graphs, the share from which one is, is higher."""
MOST_EDGES = 2**23
"""The most of them that become edges."""
LONG_PROMPT = 256
"""Number of tokens above which freed memory is returned after each batch of rows."""


def stored_share(n_rows: int, n_columns: int) -> float:
    """The share of a row from which an entry is stored, so that a row has at most 1 / share."""
    return STORED if n_rows * n_columns <= MOST_ENTRIES else max(STORED, n_rows / MOST_ENTRIES)


def edge_share(n_rows: int, n_columns: int) -> float:
    """The share of a row from which an entry becomes an edge; smaller ones are of the rest."""
    return STORED if n_rows * n_columns <= MOST_EDGES else max(STORED, n_rows / MOST_EDGES)


def most_entries(n_columns: int, share: float) -> int:
    """The most entries of a row that are no smaller than a share of it."""
    return n_columns if share * n_columns < 1 else int(1 / share)


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


@dataclass(frozen=True, eq=False)
class StoredRows:
    """The large entries of some rows.

    Attributes:
        readers: the number of the reader of each row.
        starts: the first entry of each row, and the end of the last one.
        sources: the column of each entry.
        weights: what each entry contributes to the reading.
        sizes: the sum of the sizes of all entries of each row, those that are not stored included.
        readings: what each reader reads.
    """

    readers: Int[Tensor, " row"]
    starts: Int[Tensor, " end"]
    sources: Int[Tensor, " entry"]
    weights: Float[Tensor, " entry"]
    sizes: Float[Tensor, " row"]
    readings: Float[Tensor, " row"]

    @classmethod
    def of(
        cls, rows: Float[Tensor, "row column"], readers: Int[Tensor, " row"], share: float
    ) -> "StoredRows":
        """The entries of rows from a share of their sizes on, without copies of whole rows."""
        sizes, readings = (torch.zeros(len(rows), dtype=torch.float64) for _ in range(2))
        for part in rows.split(PART, 1):
            wide = part.double().cpu()
            readings += wide.sum(1)
            sizes += wide.abs().sum(1)
        least = share * sizes[:, None].clamp(min=torch.finfo(torch.float64).tiny)
        entries: list[tuple[Tensor, Tensor, Tensor]] = []
        for number, part in enumerate(rows.split(PART, 1)):
            values = part.cpu()
            row, column = (values.double().abs() >= least).nonzero().unbind(1)
            source = (column + number * PART).to(torch.int32)
            entries.append((row, source, values[row, column]))
        row, sources, weights = map(torch.cat, zip(*entries, strict=True))
        order = row.argsort(stable=True)
        starts = torch.zeros(len(rows) + 1, dtype=torch.long)
        starts[1:] = torch.bincount(row, minlength=len(rows)).cumsum(0)
        return cls(readers, starts, sources[order], weights[order], sizes, readings)

    @classmethod
    def joined(cls, parts: Sequence["StoredRows"]) -> "StoredRows":
        """Rows one after another."""
        names = ("readers", "sources", "weights", "sizes", "readings")
        readers, *others = (torch.cat([getattr(part, name) for part in parts]) for name in names)
        ends = [part.starts[1:] - part.starts[:-1] for part in parts]
        starts = torch.zeros(len(readers) + 1, dtype=torch.long)
        starts[1:] = torch.cat(ends).cumsum(0)
        return cls(readers, starts, *others)

    def edges(self) -> Edges:
        """The entries as edges from columns to readers."""
        weights, n = self.weights.double(), self.starts[1:] - self.starts[:-1]
        sizes = self.sizes.clamp(min=torch.finfo(torch.float64).tiny)
        shares = weights.abs() / sizes.repeat_interleave(n)
        return Edges(self.readers.repeat_interleave(n), self.sources.long(), weights, shares)


class Filling:
    """Fills rows in order of influence.

    Args:
        rows: computes rows.
        logits: what the logits read.
        start: p, the share of each logit.
        share: the share of a row from which an entry is stored.
    """

    def __init__(
        self, rows: Rows, logits: Readers, start: Float[Tensor, " logit"], share: float
    ) -> None:
        self.rows, self.start = rows, start.double().cpu()
        self.columns, self.share = rows.columns, share
        self._stored: dict[int, list[StoredRows]] = {}
        self.units = torch.zeros(0, dtype=torch.long)
        self._fill(logits, 0)

    def fill(self, most: int, progress: Progress | None = None) -> None:
        """Fill the rows of up to ``most`` units, and report how many have one.

        Raises:
            Cancelled: the work was cancelled between two batches of rows.
        """
        while len(self.units) < most:
            candidates = self.influence()[self.columns.first_unit :]
            candidates[self.units - self.columns.first_unit] = 0.0
            n = min(MOST_TOGETHER, most - len(self.units), int((candidates > 0).sum()))
            if not n:
                return
            chosen = candidates.topk(n).indices + self.columns.first_unit
            del candidates
            first = len(self.start) + len(self.units)
            self.units = torch.cat([self.units, chosen])
            self._fill(self.rows.readers(chosen.to(self.rows.frozen.real.device)), first)
            if progress is not None:
                progress(len(self.units), most)

    def influence(self) -> Float[Tensor, " column"]:
        """The influence of each source by the rows so far: that of the last readers first."""
        total = torch.zeros(self.columns.n, dtype=torch.float64)
        for before in sorted(self._stored, reverse=True):
            # All that read these readers were added before.
            of_reader = torch.cat([self.start, total[self.units]])
            for stored in self._stored[before]:
                edges = stored.edges()
                total.index_add_(0, edges.source, edges.share * of_reader[edges.target])
        return total

    def filled(self) -> Filled:
        """The graph of the units that have rows; what else was stored is dropped."""
        columns, n_logits = self.columns, len(self.start)
        order = self.units.argsort()
        n_units = len(self.units)
        first = columns.first_unit + 1
        number = torch.full((columns.n,), -1, dtype=torch.int32)
        number[: columns.first_unit] = torch.arange(columns.first_unit, dtype=torch.int32)
        number[self.units[order]] = first + torch.arange(n_units, dtype=torch.int32)
        of_reader = torch.cat([first + n_units + torch.arange(n_logits), number[self.units].long()])
        everything = torch.zeros(first + n_units + n_logits, dtype=torch.float64)
        weight, share = torch.zeros_like(everything), torch.zeros_like(everything)
        parts: list[Edges] = []
        least = edge_share(len(of_reader), first + n_units)
        blocks = [block for blocks in self._stored.values() for block in blocks]
        self._stored.clear()
        while blocks:
            stored = blocks.pop()
            everything[of_reader[stored.readers]] = stored.readings
            edges = stored.edges()
            source = number[edges.source].long()
            edges = Edges(of_reader[edges.target], source, edges.weight, edges.share)
            parts.append(edges.only((source >= 0) & (edges.share >= least)))
            weight.index_add_(0, parts[-1].target, parts[-1].weight)
            share.index_add_(0, parts[-1].target, parts[-1].share)
        del number
        weight, share = (everything - weight)[of_reader], 1.0 - share[of_reader]
        some = share > 1e-12  # noqa: PLR2004 - rounding of a sum of shares
        rest = torch.full_like(of_reader, columns.first_unit)
        parts.append(Edges(of_reader, rest, weight, share).only(some))
        return Filled(columns, self.units[order], joined(parts), everything, n_logits)

    def _fill(self, readers: Readers, first: int) -> None:
        """Store the large entries of the rows of readers, which are numbered from ``first``.

        Raises:
            Cancelled: the work was cancelled between two batches of rows.
        """
        for batch in self.rows.batches(readers):
            rows, befores = self.rows.of(readers.only(batch)), readers.before[batch]
            for before in befores.unique().tolist():
                which = befores == before
                stored = StoredRows.of(rows[which], first + batch[which].cpu(), self.share)
                blocks = self._stored.setdefault(before, [])
                if blocks and len(blocks[-1].readers) < BLOCK:
                    stored = StoredRows.joined([blocks.pop(), stored])
                blocks.append(stored)
            del rows
            if self.columns.n_pos > LONG_PROMPT:  # what is stored lies between what was freed
                return_freed_memory()
            check_cancelled()
