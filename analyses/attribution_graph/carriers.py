"""Which heads carry each edge: sources are propagated up the frozen model, to where targets read.

    part_h(target, source) = z_h(source)_i · W_O,h · D        bypass = source_i · D
    part_skip(target, source) = norm(source)_i · W_skip · D

A source is a vector of the stream at its position. With patterns and divisors fixed, each head h
writes z_h W_O,h for it, at every position; a target at position i reads this along its direction D.
So the part of h is all that reaches the target with h as the last head on the route, and the bypass
is what nothing carries: the source itself, where it stands at the target's position. The parts sum
to the edge. All sources of a batch are propagated together, in one forward without softmax: from
the sub-layer where the first of them enters, and with causal attention from its position.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from analyses.attribution_graph.rows import Readers, Rows
from analyses.methods.frozen import Branch, output_norm
from interp.model import ScaledNorm
from interp.points import Place, Point

SOURCES_BYTES = 2**24
"""The most bytes of the streams that are propagated together: few, as their sources then enter near
to one another."""
BATCH_BYTES = 2**22
"""The most bytes of what heads write at the positions of some readers."""
EDGES_BYTES = 2**26
"""The most edges of a forward, times d_model."""
Stream = Float[Tensor, "source pos d_model"]


class Cells(NamedTuple):
    """The edges whose parts are computed.

    Attributes:
        reader: the index of each edge's target among the readers.
        column: the column of its source.
    """

    reader: Int[Tensor, " edge"]
    column: Int[Tensor, " edge"]


def parts_of_edges(rows: Rows, readers: Readers, cells: Cells) -> Float[Tensor, "edge carrier"]:
    """The part of each edge that each carrier carries (see :attr:`Rows.carriers`)."""
    n_carriers = len(rows.carriers)
    out = torch.zeros(len(cells.column), n_carriers, dtype=torch.float64)
    sources = cells.column.unique()
    n_pos, d_model = rows.frozen.embeddings.shape
    size = max(1, SOURCES_BYTES // (rows.frozen.embeddings.element_size() * n_pos * d_model))
    ends = torch.searchsorted(sources, torch.tensor(rows.starts, device=sources.device))
    alike = [part for part in sources.tensor_split(ends.cpu()) if len(part)]
    for batch in (batch for part in alike for batch in part.split(size)):
        for few in torch.isin(cells.column, batch).nonzero()[:, 0].split(EDGES_BYTES // d_model):
            walk = _Walk(rows, readers, batch, Cells(*(each[few] for each in cells)))
            out[few] = walk.parts().double().cpu()
    return out


def sums_of_carriers(rows: Rows, readers: Readers) -> Float[Tensor, "row carrier"]:
    """What each carrier brings to each reader from all sources together."""
    sums = rows.frozen.embeddings.new_zeros(len(readers.pos), len(rows.carriers))
    sums[:, 0] = readers.bias
    carrier_of = {writer: carrier for carrier, writer in enumerate(rows.heads, start=1)}
    for writer, vectors in _written(rows):
        written = (vectors[readers.pos] * readers.direction).sum(-1)
        sums[:, carrier_of.get(writer, 0)] += torch.where(readers.before > writer, written, 0.0)
    for number in rows.skips:
        branch = rows.frozen.branches[number]
        skipped = rows.frozen.normalized_input(branch) @ rows.skip(number)
        skipped = _of_units(rows, number, skipped, slice(None))
        read = (skipped[readers.pos] * readers.direction).sum(-1)
        read = torch.where(readers.before >= branch.writers.stop, read, 0.0)
        sums[:, rows.carrier_of_skip(number)] += read
        sums[:, 0] -= read
    return sums.double().cpu()


def _written(rows: Rows) -> Iterator[tuple[int, Float[Tensor, "pos d_model"]]]:
    """What each writer adds to the stream; the embeddings together as the first one."""
    frozen = rows.frozen
    yield 0, frozen.embeddings
    yield from frozen.bias_vectors.items()
    for branch in frozen.branches:
        yield from zip(branch.writers, frozen.written(branch), strict=True)


class _Walk:
    """One forward of some sources through the frozen model.

    Args:
        rows: what sources there are.
        readers: the readers.
        sources: the columns of the sources.
        cells: the edges from them.
    """

    def __init__(
        self, rows: Rows, readers: Readers, sources: Int[Tensor, " source"], cells: Cells
    ) -> None:
        self.rows, self.frozen, self.readers = rows, rows.frozen, readers
        device = self.frozen.embeddings.device
        self.sources = sources.to(device)
        self.reader = cells.reader.to(device)
        self.source = torch.searchsorted(self.sources, cells.column.to(device))
        self.is_bias = (self.sources == rows.columns.bias).nonzero()[:, 0]
        like = self.frozen.embeddings
        self.first = 0 if rows.is_bidirectional else int(rows.positions(self.sources).min())
        self.positions = slice(self.first, None)
        self.stream = like.new_zeros(len(self.sources), like.shape[0] - self.first, like.shape[1])
        # To the bias, norms and values add from the first sub-layer on.
        self.is_empty = not len(self.is_bias)
        self.out = like.new_zeros(len(self.reader), len(rows.carriers))

    def parts(self) -> Float[Tensor, "edge carrier"]:
        """The part of each edge that each carrier carries."""
        self._place(0, self.frozen.embeddings, 0)
        from_bias = (self.source[:, None] == self.is_bias).any(1)
        self.out[:, 0] += torch.where(from_bias, self.readers.bias[self.reader], 0.0)
        for before, end in self.rows.groups:
            written = 0 if self.is_empty else self._carried(before)
            for writer in range(before, end):
                if self.frozen.parts[writer].kind == "bias":
                    self._add_bias(self.frozen.bias_vectors[writer], before)
            for number, branch in enumerate(self.frozen.branches):
                if branch.before == before:
                    self._add_units(number, branch)
            self.stream += written
        return self.out

    def _carried(self, before: int) -> Stream:
        """What the heads and skips that read the stream after so many writers write."""
        written = torch.zeros_like(self.stream)
        for branch in self.rows.attentions(before):
            written += self._through_heads(branch)
        for number in self.rows.skips_after(before):
            written += self._through_skip(number)
        return written

    # ---- sources, where they enter the stream --------------------------------------------------

    def _add_units(self, number: int, branch: Branch) -> None:
        """What units write to one sub-layer, its error and the bias of units."""
        rows = self.rows
        units = rows.units.get(number)
        if number in rows.errors:
            first = rows.columns.n_pos * (1 + rows.errors[number])
            if units is None or units.error is None:
                self._place(first, self.frozen.written(branch)[0], branch.before)
            else:
                error = _of_units(rows, number, units.error, slice(None))
                self._place(first, error, branch.before)
        if units is None:
            return
        if units.bias is not None:
            self._add_bias(_of_units(rows, number, units.bias, slice(None)), branch.before)
        for source in rows.sources(number):
            inside = rows.inside(source, self.sources).nonzero()[:, 0]
            which = self.sources[inside] - rows.first[source]
            pos, _ = rows.units[source].places(which)
            written = _of_units(rows, number, rows.units[source].written(which, number), pos)
            self._enter(inside, pos, written, branch.before)

    def _place(self, first: int, vectors: Float[Tensor, "pos d_model"], before: int) -> None:
        """Sources with one column for each position, from a first one on."""
        pos = self.sources - first
        inside = ((pos >= 0) & (pos < len(vectors))).nonzero()[:, 0]
        self._enter(inside, pos[inside], vectors[pos[inside]], before)

    def _enter(self, which: Tensor, pos: Tensor, vectors: Tensor, before: int) -> None:
        """Add sources to the stream, and to the bypass of edges to readers at their position."""
        if not len(which):
            return
        self.is_empty = False
        self.stream[which, pos - self.first] += vectors
        index = torch.full_like(self.sources, -1)
        index[which] = torch.arange(len(which), device=which.device)
        at = index[self.source]
        readers = self.readers
        is_read = (at >= 0) & (readers.before[self.reader] > before)
        edges = (is_read & (readers.pos[self.reader] == pos[at.clamp(min=0)])).nonzero()[:, 0]
        direction = readers.direction[self.reader[edges]]
        self.out[edges, 0] += (vectors[at[edges]] * direction).sum(-1)

    def _add_bias(self, vectors: Float[Tensor, "pos d_model"], before: int) -> None:
        """The same for what biases write, at all positions."""
        for source in self.is_bias.tolist():
            self.stream[source] += vectors
            is_read = self.readers.before[self.reader] > before
            edges = ((self.source == source) & is_read).nonzero()[:, 0]
            reader = self.reader[edges]
            read = vectors[self.readers.pos[reader]] * self.readers.direction[reader]
            self.out[edges, 0] += read.sum(-1)

    # ---- heads -----------------------------------------------------------------------------------

    def _through_heads(self, branch: Branch) -> Stream:
        """What the heads of a sub-layer write for each source; their parts are added to edges."""
        attn, W, b = self.rows.value_weights(branch)
        W_O = attn.W_O.to(self.stream.dtype)
        normed, constant = self._normalized_input(branch)
        v = einsum(normed, W, "source key m, head m d -> source key head d")
        constants = b if constant is None else b + constant @ W
        v[self.is_bias] += constants
        z = torch.zeros_like(v)
        for queries, keys, pattern in self.frozen.patterns(branch):
            if queries.stop <= self.first:
                continue
            after = max(queries.start, self.first)
            part = pattern[:, after - queries.start :, self.first :].to(v.dtype)
            z[:, after - self.first : queries.stop - self.first] = einsum(
                part,
                v[:, : keys.stop - self.first],
                "head query key, source key head d -> source query head d",
            )
        self._read(branch, z, W_O)
        written = einsum(z, W_O, "source query head d, head d m -> source query m")
        return _after_output_norm(self.rows, branch, written, self.positions)

    def _through_skip(self, number: int) -> Stream:
        """What the skip of a sub-layer's units writes for each source; its parts are added."""
        branch, W_skip = self.frozen.branches[number], self.rows.skip(number)
        normed, constant = self._normalized_input(branch)
        written = normed @ W_skip
        if constant is not None:
            written[self.is_bias] += constant @ W_skip
        written = _of_units(self.rows, number, written, self.positions)
        readers, carrier = self.readers, self.rows.carrier_of_skip(number)
        edges = self._edges_after(branch)
        reader = self.reader[edges]
        at_readers = written[self.source[edges], readers.pos[reader] - self.first]
        self.out[edges, carrier] += (at_readers * readers.direction[reader]).sum(-1)
        return written

    def _read(self, branch: Branch, z: Tensor, W_O: Tensor) -> None:
        """Add the parts of these heads to the edges whose targets read them."""
        readers, edges = self.readers, self._edges_after(branch)
        g = self.rows.before_output_norm(branch, readers.direction, readers.pos)
        along = einsum(g, W_O, "row m, head d m -> row head d")
        carriers = torch.tensor([self.rows.heads.index(w) + 1 for w in branch.writers])
        each = max(1, BATCH_BYTES // (z[0, 0].numel() * z.element_size()))
        for few in edges.split(each):
            reader = self.reader[few]
            at_readers = z[self.source[few], readers.pos[reader] - self.first]
            parts = (at_readers * along[reader]).sum(-1)
            self.out[few[:, None], carriers.to(few.device)] += parts

    def _edges_after(self, branch: Branch) -> Int[Tensor, " edge"]:
        """The edges whose targets read a sub-layer, where something may have reached it."""
        before, pos = self.readers.before[self.reader], self.readers.pos[self.reader]
        return ((before >= branch.writers.stop) & (pos >= self.first)).nonzero()[:, 0]

    def _normalized_input(self, branch: Branch) -> tuple[Stream, Tensor | None]:
        """The stream after the input norm without its bias, and this bias."""
        norm = branch.step.input_norm
        if not isinstance(norm, ScaledNorm):
            return self.stream, None
        scale = self.frozen.at(Place(Point.SCALE, branch.layer, branch.step.norm.name))
        return _by_scale(norm, self.stream, scale[self.positions])


def _of_units(rows: Rows, number: int, x: Tensor, at: Tensor | slice) -> Tensor:
    """What units write as what the sub-layer adds to the stream, without the bias of its norm."""
    if rows.units[number].writes_after_norm:
        return x
    return _after_output_norm(rows, rows.frozen.branches[number], x, at)


def _after_output_norm(rows: Rows, branch: Branch, x: Tensor, at: Tensor | slice) -> Tensor:
    """What a sub-layer writes after its output norm, without the bias of the norm."""
    normed = output_norm(branch.layer, branch.step)
    if normed is None:
        return x
    return _by_scale(normed[0], x, rows.frozen.at(normed[1])[at])[0]


def _by_scale(norm: ScaledNorm, x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor | None]:
    """A norm with its divisor fixed, without its bias; and this bias."""
    y, gain = norm.centred(x) / scale, norm.multiplier
    bias = None if norm.bias is None else norm.bias.to(x.dtype)
    return (y if gain is None else y * gain), bias
