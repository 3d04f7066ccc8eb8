"""What a graph takes, before it is computed: candidates, multiply-adds, bytes at the peak, time.

    bytes = run + max(walk, pruning, splitting, checks) + stored rows

One forward counts the units that are active; all else follows from shapes. Bytes are bounds: as
if every row had as many entries as it may have, and as if all edges stayed when they are pruned.
Multiply-adds are those of rows alone, as if each read all positions from the last layer; time is at
the rate of a matrix product that is measured, without the forward, the checks and the heads.
"""

from dataclasses import dataclass, replace
from math import nan
from time import perf_counter

import torch
from torch import Tensor

from analyses.attribution_graph.carriers import BATCH_BYTES, EDGES_BYTES, SOURCES_BYTES
from analyses.attribution_graph.filling import (
    BLOCK,
    MOST_TOGETHER,
    PART,
    edge_share,
    most_entries,
    stored_share,
)
from analyses.attribution_graph.rows import WALK_BYTES, Rows
from analyses.methods.frozen import BLOCK_BYTES, attention_of
from interp.errors import OutOfResources
from interp.estimates import Estimate
from interp.execution import free_bytes, size_of
from interp.model import MLP, Attention

PASSED = 2
"""Number of tensors of the size of an MLP's neurons while directions pass through them."""
EDGE = 32
"""Bytes of an edge: target, source, weight and share."""
WALKING = 8
"""Number of tensors of the size of the demands that exist at a time."""
WIDE = 3
"""Number of float64 copies of a part of rows that exist at a time."""
EDGES = 3
"""Number of copies of all edges while they are pruned."""
FORMED = 3
"""Number of tensors of the size of a pattern, or of a block of one, while it is formed."""
TERMS_BYTES = 2**30
"""The most bytes of the parts of edges; edges with more are not split by heads."""
TERMS = 2
"""Number of copies of the parts of edges that exist at a time."""
TIMED = 2**10
"""Rows and columns of the product by which the rate is measured."""


@dataclass(frozen=True)
class GraphEstimate:
    """What a graph takes, beyond the model.

    Attributes:
        candidates: number of active units, which may become nodes.
        rows: the most rows that are computed, those of logits included.
        multiply_adds: the most multiply-adds of the rows.
        nbytes: the most bytes at a time.
        seconds: time of the rows at the rate of a matrix product; NaN if that was not measured.
    """

    candidates: int
    rows: int
    multiply_adds: float
    nbytes: int
    seconds: float = nan

    def __str__(self) -> str:
        return (
            f"up to {self.rows} rows of {self.candidates} candidates: at most "
            f"{size_of(self.nbytes)}, {self.multiply_adds:.2g} multiply-adds, about "
            f"{self.seconds:.2g} s"
        )

    def timed(self, like: Tensor) -> "GraphEstimate":
        """The same with the time, on the device and in the dtype of a tensor."""
        return replace(self, seconds=self.multiply_adds / _rate(like))

    def check(self, memory: float | None, device: torch.device) -> None:
        """Check that the graph fits.

        Raises:
            OutOfResources: it takes more than ``memory``, or than what is free.
        """
        most = free_bytes(device) if memory is None else memory
        if self.nbytes > most:
            raise OutOfResources(
                f"This graph may take {size_of(self.nbytes)} ({self.rows} rows of "
                f"{self.candidates} candidates), more than the {size_of(int(most))} that "
                f"{'are free' if memory is None else 'memory= allows'}: lower max_nodes=, shorten "
                "the prompt, or pass heads=False."
            )


def estimate_of(
    rows: Rows, run: Estimate, *, n_logits: int, max_nodes: int, heads: bool, check: int
) -> GraphEstimate:
    """The estimate of a graph whose run was recorded.

    Args:
        rows: the rows of the run.
        run: the estimate of the run.
        n_logits: number of logits.
        max_nodes: the most units with rows.
        heads: whether edges are split.
        check: number of units that are removed.
    """
    candidates = sum(each.n_active for each in rows.units.values())
    n_rows = min(max_nodes, candidates) + n_logits
    work = _multiply_adds(rows) * n_rows
    n_bytes = _bytes(rows, run, n_rows, heads=heads, check=check)
    return GraphEstimate(candidates, n_rows, work, n_bytes)


def _bytes(rows: Rows, run: Estimate, n_rows: int, *, heads: bool, check: int) -> int:
    """The most bytes at a time."""
    frozen, columns = rows.frozen, rows.columns
    n_pos, d_model = frozen.embeddings.shape
    size = frozen.embeddings.element_size()
    stream = size * n_pos * d_model
    attentions = [branch for branch in frozen.branches if isinstance(branch.step.f, Attention)]
    n_heads = [attention_of(branch).n_heads for branch in attentions]
    matrix = size * n_pos**2 * max(n_heads, default=0)
    patterns = FORMED * BLOCK_BYTES
    whole = 0
    if frozen.keeps_patterns:
        whole = size * n_pos**2 * sum(n_heads) + 4 * stream * len(n_heads)
        patterns = FORMED * matrix
    listed = columns.first_unit + n_rows
    entries = n_rows * most_entries(columns.n, stored_share(n_rows, columns.n))
    n_edges = n_rows * (1 + most_entries(min(listed, columns.n), edge_share(n_rows, listed)))
    units = sum(each.n * (16 + 2 * size) for each in rows.units.values() if each.kind == "feature")
    streams = 1 + len(frozen.bias_vectors) + 2 * len(rows.units)
    held = run.kept + units + streams * stream + whole + 8 * columns.n + entries * (4 + size)
    together = min(n_rows, MOST_TOGETHER)
    batch = min(together, max(1, WALK_BYTES // (size * max(n_pos * d_model, columns.n))))
    wide = max([n_pos * _width(rows), n_pos * d_model])
    row = batch * (2 * size * columns.n + WIDE * 8 * min(PART, columns.n))
    walk = batch * (WALKING * stream + size * wide) + row + patterns
    ranking = 3 * 8 * columns.n + 2 * EDGE * 2 * BLOCK * min(columns.n, entries // n_rows + 1)
    pruning = EDGES * EDGE * n_edges + 4 * columns.n
    phases = [walk, ranking, pruning]
    if any(each.kind in ("head", "mlp") for each in rows.units.values()):
        along = WALKING * stream + PASSED * size * n_pos * max(_widths(rows).values(), default=0)
        phases.append(2 * along + patterns)
    if heads and len(rows.carriers) > 1:
        terms = min(TERMS_BYTES, n_edges * len(rows.carriers) * 8) * TERMS
        sources = min(max(SOURCES_BYTES, stream), stream * listed)
        some = min(n_edges, sources // stream * n_rows, EDGES_BYTES // d_model)
        parts = 2 * 8 * some * len(rows.carriers) + 3 * min(BATCH_BYTES, size * some * d_model)
        phases.append(EDGE * n_edges + terms + WALKING * sources + parts + patterns)
    if check:
        phases.append(EDGE * n_edges + FORMED * matrix + run.peak)
    return max(run.peak, held + max(phases))


def _widths(rows: Rows) -> dict[int, int]:
    """The width of each MLP, by its index among the branches."""
    parts = enumerate(branch.step.f for branch in rows.frozen.branches)
    return {number: f.W_in.shape[1] for number, f in parts if isinstance(f, MLP)}


def _width(rows: Rows) -> int:
    """The width of the widest MLP that is multiplied whole, with copies of those passed through."""
    copies = {number: 1 for number, each in rows.units.items() if each.kind == "neuron"}
    copies |= dict.fromkeys(rows.passed, PASSED)
    widths = _widths(rows)
    return max((n * widths[number] for number, n in copies.items()), default=0)


def _multiply_adds(rows: Rows) -> float:
    """The multiply-adds of one row that reads all positions from the last layer."""
    n_pos, d_model = rows.frozen.embeddings.shape
    total = float(n_pos * d_model)
    for number, branch in enumerate(rows.frozen.branches):
        if isinstance(branch.step.f, Attention):
            width = branch.step.f.n_heads * branch.step.f.d_head
            n_keys = n_pos if rows.is_bidirectional else n_pos / 2
            # Of heads that are units, outputs alone are multiplied; and what a row's own reads.
            reads = 0 if number in rows.units else d_model + n_keys
            total += n_pos * width * (d_model + reads)
    total += sum(2 * each.n * d_model for each in rows.passed.values())
    return total + sum(
        each.n * d_model * len(each.targets) + (n_pos * d_model**2 if each.skip is not None else 0)
        for each in rows.units.values()
    )


def _rate(like: Tensor) -> float:
    """Multiply-adds in a second of a matrix product."""
    x = like.new_ones(TIMED, TIMED)
    float((x @ x)[0, 0])
    began = perf_counter()
    float((x @ x)[0, 0])
    return TIMED**3 / (perf_counter() - began)
