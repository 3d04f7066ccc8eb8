"""What a node reads of every other node: rows of the graph, from one walk down the frozen model.

A target reads the stream along a direction D at a position. Walking down from it, the direction at
a sub-layer's output is pulled back through each head to the positions that it attends to,

    D_j += norm_j( Σ_h Σ_i A_ij (D_i W_O,hᵀ) W_V,hᵀ )

with patterns and divisors of norms fixed, and is multiplied by what each unit writes there.
Sub-layers whose units are nodes are not passed through. The products and the constants sum to the
reading. A target that is a head reads all positions that it attends to: its walk begins with D_j
of this head alone.

An edge has a part for each head, one for the skip of each transcoder that has one, and a bypass
through none of these; they sum to it. A route through several belongs to the last of them, the one
nearest to the target: its value is what the target reads, whatever carried the information there.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.attribution_graph.units import ScalarUnits, Units
from analyses.methods.frozen import Branch, FrozenModel, attention_of, output_norm
from interp.model import Attention, ScaledNorm
from interp.points import Place, Point

Demand = Float[Tensor, "row pos d_model"]
"""A direction of the stream at each position, for each row."""
WALK_BYTES = 2**25
"""The most bytes of the demands, and of the rows, that are computed together."""
BYPASS = "bypass"
"""The part of an edge that no head and no skip carries."""


@dataclass(frozen=True, eq=False)
class Readers:
    """Readers of the stream.

    Attributes:
        before: the number of writers before each reader, which it reads.
        pos: the position that it reads.
        direction: the direction of the stream along which it reads; of a head, that of what it
            writes, before a norm of the output.
        bias: what it reads besides the stream.
        head: the index among the writers of a reader that is a head, which reads all positions
            that it attends to; −1 of others.
    """

    before: Int[Tensor, " row"]
    pos: Int[Tensor, " row"]
    direction: Float[Tensor, "row d_model"]
    bias: Float[Tensor, " row"]
    head: Int[Tensor, " row"]

    @classmethod
    def of_stream(
        cls,
        before: Int[Tensor, " row"],
        pos: Int[Tensor, " row"],
        direction: Float[Tensor, "row d_model"],
        bias: Float[Tensor, " row"],
    ) -> "Readers":
        """Readers that are no heads."""
        return cls(before, pos, direction, bias, torch.full_like(pos, -1))

    @classmethod
    def joined(cls, parts: Sequence["Readers"]) -> "Readers":
        """Readers one after another."""
        names = cls.__dataclass_fields__
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in names))

    def mean(self, weights: Float[Tensor, " row"]) -> "Readers":
        """One reader of the sum of what these read at one place, each with its weight."""
        p = weights.to(self.direction)
        direction, bias = (p @ self.direction)[None], (p @ self.bias)[None]
        return Readers.of_stream(self.before[:1], self.pos[:1], direction, bias)

    def only(self, which: Int[Tensor, " chosen"]) -> "Readers":
        """Some of the readers."""
        return Readers(*(getattr(self, name)[which] for name in self.__dataclass_fields__))


class Columns(NamedTuple):
    """The sources that rows are about, in this order: embeddings, errors, the bias, units.

    Attributes:
        n_pos: number of embeddings, one for each position.
        errors: the layer of each sub-layer with an error, one source for each position.
        n_units: number of units of each sub-layer that has units.
    """

    n_pos: int
    errors: tuple[int, ...]
    n_units: tuple[int, ...]

    @property
    def bias(self) -> int:
        """The column of the biases."""
        return self.n_pos * (1 + len(self.errors))

    @property
    def first_unit(self) -> int:
        """The first column of a unit."""
        return self.bias + 1

    @property
    def n(self) -> int:
        """Number of columns."""
        return self.first_unit + sum(self.n_units)


class Rows:
    """Computes rows of the graph of one run.

    Args:
        frozen: the run.
        units: the units of sub-layers, by their index among the branches.
        passed: units that are no nodes, likewise: directions pass through them, as through heads.

    Attributes:
        columns: what the entries of a row are about.
        heads: the heads that are no units, by their indices among the writers.
        skips: the index among the branches of each sub-layer whose units have a skip.
        carriers: what an edge is split by: the bypass, then every head, then every skip; where
            heads are units, the bypass alone, which is then all of the edge.
        errors: the row of each sub-layer with an error among those of :class:`Columns`, by its
            index among the branches.
        first: the first column of the units of each sub-layer, likewise.
        groups: the writers before each step of the forward and after it; parallel sub-layers are
            one step.
        n_entry: the number of writers before the first sub-layer.
    """

    def __init__(
        self,
        frozen: FrozenModel,
        units: Mapping[int, Units],
        passed: Mapping[int, ScalarUnits] | None = None,
    ) -> None:
        self.frozen, self.units, self.passed = frozen, units, passed or {}
        with_error = [n for n, branch in enumerate(frozen.branches) if self._error(n, branch)]
        self.errors = {number: row for row, number in enumerate(with_error)}
        self.columns = Columns(
            len(frozen.embeddings),
            tuple(frozen.branches[number].layer for number in with_error),
            tuple(each.n for each in units.values()),
        )
        attend = [number for number, each in units.items() if each.attends]
        nodes = {writer for number in attend for writer in frozen.branches[number].writers}
        heads = {n for n, part in enumerate(frozen.parts) if part.kind == "head"}
        self.heads = sorted(heads - nodes)
        self.skips = [number for number, each in units.items() if each.skip is not None]
        names = [frozen.parts[writer].name for writer in self.heads]
        mlps = [frozen.parts[frozen.branches[number].writers[0]].name for number in self.skips]
        carriers = () if attend else (*names, *(f"{mlp} skip" for mlp in mlps))
        self.carriers = (BYPASS, *carriers)
        self.first = dict(zip(units, self._starts(), strict=True))
        befores = sorted({branch.before for branch in frozen.branches})
        self.groups = [*zip(befores, [*befores[1:], len(frozen.parts)], strict=True)]
        self.n_entry = befores[0] if befores else len(frozen.parts)

    def readers(self, columns: Int[Tensor, " row"]) -> Readers:
        """What the units of some columns read."""
        like, none = self.frozen.embeddings, columns.new_zeros(0)
        empty = like.new_zeros(0, like.shape[1]), like.new_zeros(0)
        parts, order = [Readers.of_stream(none, none, *empty)], [none]
        for number in self.units:
            inside = self.inside(number, columns)
            parts.append(self._readers(number, columns[inside] - self.first[number]))
            order.append(inside.nonzero()[:, 0])
        return Readers.joined(parts).only(torch.cat(order).argsort())

    def _readers(self, number: int, which: Int[Tensor, " chosen"]) -> Readers:
        """What some units of a sub-layer read."""
        units, branch = self.units[number], self.frozen.branches[number]
        (pos, index), (direction, bias) = units.places(which), units.readers(which)
        before = torch.full_like(pos, branch.before)
        if units.attends:
            return Readers(before, pos, direction, bias, branch.writers.start + index)
        if not units.reads_stream:
            direction, constant = self._pulled(branch, direction, pos)
            bias = bias + constant
        return Readers.of_stream(before, pos, direction, bias)

    def of(self, readers: Readers) -> Float[Tensor, "row column"]:
        """What readers read of each source; a row sums to all that its reader reads.

        Unless positions read later ones, the walk is over those up to the last one of the readers.
        """
        n, order = len(readers.pos), readers.before.argsort(descending=True, stable=True)
        readers = readers.only(order)
        out = self.frozen.embeddings.new_zeros(n, self.columns.n)
        # The walk begins with the last readers; others join where their sub-layer is reached.
        demand, out[:, self.columns.bias] = self._demands(readers)
        for group in reversed(self.groups):
            some = slice(0, int((readers.before > group[0]).sum()))
            walking = demand[some]
            for where, values in self._terms(group, walking):
                out[some, where] += values
            added = torch.zeros_like(walking)
            for carried, bias in self._routes(group[0], walking):
                added += carried
                out[some, self.columns.bias] += bias
            walking += added
        out[:, : demand.shape[1]] += self._of_embeddings(demand)
        return out if n == 1 else out[order.argsort()]

    def directions(
        self, reader: Readers, numbers: Collection[int]
    ) -> dict[int, Float[Tensor, "two pos d_model"]]:
        """Along what one reader reads some sub-layers, by their index among the branches.

        These are directions of what the sub-layer writes, before a norm of its output, through all
        that follows: heads and units, as directions pass through units here, which are all scalar.
        Of the two, the first has effects of units with their sign, the second their sizes.
        """
        demand, _ = self._demands(Readers.joined([reader, reader]))
        n_pos, branches = demand.shape[1], self.frozen.branches
        along, effects = dict[int, Tensor](), dict[int, Tensor]()
        for before, _ in reversed(self.groups):
            added = [carried for carried, _ in self._routes(before, demand)]
            for number in (n for n, branch in enumerate(branches) if branch.before == before):
                if number in numbers:
                    g = self.before_output_norm(branches[number], demand, slice(n_pos))
                    along[number] = torch.zeros_like(self.frozen.embeddings).repeat(2, 1, 1)
                    along[number][:, :n_pos] = g
                units = self.units.get(number)
                if not isinstance(units, ScalarUnits):
                    continue
                g = self.at_units(number, demand)
                for source in self.sources(number):
                    written = self.units[source].effects(g, number)
                    effects[source] = effects.get(source, 0.0) + written
                by_sign, by_size = effects.pop(number)
                both = torch.stack([by_sign, by_size.abs()])
                added.append(self._through(number, units, both, n_pos)[0])
            demand = torch.stack([demand, *added]).sum(0)
        return along

    def width(self, readers: Readers) -> int:
        """The number of positions that readers read: those up to the last one of them."""
        if self.is_bidirectional or not len(readers.pos):
            return self.columns.n_pos
        return int(readers.pos.max()) + 1

    def batches(self, readers: Readers) -> list[Int[Tensor, " row"]]:
        """Readers whose rows are computed together: those at near positions, in few bytes."""
        size, d_model = self.frozen.embeddings.element_size(), self.frozen.embeddings.shape[1]
        order = readers.pos.argsort(stable=True)
        batches: list[Tensor] = []
        while len(order):
            # From the last position on, so that each batch is as wide as its first reader.
            last = self.columns.n_pos if self.is_bidirectional else int(readers.pos[order[-1]]) + 1
            n = max(1, WALK_BYTES // (size * max(last * d_model, self.columns.n)))
            batches.append(order[-n:].sort().values)
            order = order[:-n]
        return batches

    # ---- steps of the walk ---------------------------------------------------------------------

    def _demands(self, readers: Readers) -> tuple[Demand, Float[Tensor, " row"]]:
        """The directions of the stream along which readers read it, and what else they read."""
        like, n, n_pos = self.frozen.embeddings, len(readers.pos), self.width(readers)
        demand, bias = like.new_zeros(n, n_pos, like.shape[1]), readers.bias.clone()
        at_place = (readers.head < 0).nonzero()[:, 0]
        demand[at_place, readers.pos[at_place]] = readers.direction[at_place]
        for branch in (self.frozen.branches[n] for n, each in self.units.items() if each.attends):
            head, attn = readers.head - branch.writers.start, attention_of(branch)
            rows = ((head >= 0) & (head < attn.n_heads)).nonzero()[:, 0]
            if not len(rows):
                continue
            which = torch.arange(len(rows), device=rows.device), readers.pos[rows], head[rows]
            along = like.new_zeros(len(rows), n_pos, attn.n_heads, attn.d_head)
            W_O = attn.W_O[head[rows]].to(like.dtype)
            along[which] = einsum(readers.direction[rows], W_O, "row m, row d m -> row d")
            demand[rows], bias[rows] = self._attended(branch, along)
        return demand, bias

    def _terms(
        self, group: tuple[int, int], demand: Demand
    ) -> Iterator[tuple[slice | int, Tensor]]:
        """Columns and what the sub-layers of a group write along the directions of their output."""
        frozen, columns = self.frozen, self.columns
        for writer in range(*group):
            if frozen.parts[writer].kind == "bias":
                bias = frozen.bias_vectors[writer][: demand.shape[1]]
                yield columns.bias, (demand * bias).sum((1, 2))
        for number, branch in enumerate(frozen.branches):
            if branch.before != group[0]:
                continue
            if number in self.units:
                yield from self._of_units(number, demand)
            if number in self.errors:
                first = columns.n_pos * (1 + self.errors[number])
                yield slice(first, first + demand.shape[1]), self._of_error(number, demand)

    def _of_units(self, number: int, demand: Demand) -> Iterator[tuple[slice | int, Tensor]]:
        """Columns and what units, and their bias, write to a sub-layer along directions."""
        units, g = self.units[number], self.at_units(number, demand)
        for source in self.sources(number):
            first, of_source = self.first[source], self.units[source]
            yield slice(first, first + of_source.first(g.shape[1])), of_source.effects(g, number)
        if units.bias is not None:
            bias = units.bias[: g.shape[1]]
            yield self.columns.bias, (g * bias).sum((1, 2))

    def _of_error(self, number: int, demand: Demand) -> Float[Tensor, "row pos"]:
        branch = self.frozen.branches[number]
        units = self.units.get(number)
        if units is None or units.error is None:
            (error,) = self.frozen.written(branch)
        else:
            demand, error = self.at_units(number, demand), units.error
        return (demand * error[: demand.shape[1]]).sum(-1)

    def _of_embeddings(self, demand: Demand) -> Float[Tensor, "row pos"]:
        embeddings = self.frozen.embeddings[: demand.shape[1]]
        return (demand * embeddings).sum(-1)

    def at_units(self, number: int, demand: Demand) -> Demand:
        """A direction of what a sub-layer adds to the stream, as one of what its units write."""
        units = self.units.get(number) or self.passed[number]
        if units.writes_after_norm:
            return demand
        branch = self.frozen.branches[number]
        return self.before_output_norm(branch, demand, slice(demand.shape[1]))

    def before_output_norm(
        self, branch: Branch, direction: Float[Tensor, "*rows d_model"], at: Tensor | slice
    ) -> Float[Tensor, "*rows d_model"]:
        """A direction of what a sub-layer adds to the stream, as one before its output norm."""
        normed = output_norm(branch.layer, branch.step)
        if normed is None:
            return direction
        return normed[0].pull_back(direction, self.frozen.at(normed[1])[at])[0]

    def value_weights(self, branch: Branch) -> tuple[Attention, Tensor, Tensor]:
        """The attention of a sub-layer, and the weights and biases of each head's values."""
        attn = attention_of(branch)
        shared = [attn.kv_head(head) for head in range(attn.n_heads)]
        dtype = self.frozen.embeddings.dtype
        W, b = (x.to(dtype)[shared] for x in attn.projection(attn.points.v))
        return attn, W, b

    def _routes(
        self, before: int, demand: Demand
    ) -> Iterator[tuple[Demand, Float[Tensor, " row"]]]:
        """What is read along directions by all that is no node of the sub-layers of a group."""
        for branch in self.attentions(before):
            g = self.before_output_norm(branch, demand, slice(demand.shape[1]))
            W_O = attention_of(branch).W_O.to(g.dtype)
            along = einsum(g, W_O, "row query m, head d m -> row query head d")
            del g
            yield self._attended(branch, along)
        for number in self.skips_after(before):
            yield self._skipped(number, demand)
        for number, units in self.passed.items():
            if self.frozen.branches[number].before == before:
                effects = units.effects(self.at_units(number, demand), number)
                yield self._through(number, units, effects, demand.shape[1])

    def _attended(
        self, branch: Branch, along: Float[Tensor, "row query head d_head"]
    ) -> tuple[Demand, Float[Tensor, " row"]]:
        """What the heads of a sub-layer read for their outputs before W_O along directions."""
        _, W, b = self.value_weights(branch)
        n_pos, by_value = along.shape[1], torch.zeros_like(along)
        for queries, keys, pattern in self.frozen.patterns(branch):
            if queries.start >= n_pos:
                break
            some, read = along[:, queries], slice(keys.start, min(keys.stop, n_pos))
            part = pattern[:, : some.shape[1], : read.stop].to(along.dtype)
            by_value[:, read] += einsum(
                part, some, "head query key, row query head d -> row key head d"
            )
        direction = einsum(by_value, W, "row key head d, head m d -> row key m")
        pulled, constant = self._pulled(branch, direction, slice(n_pos))
        return pulled, constant.sum(-1) + einsum(by_value, b, "row key head d, head d -> row")

    def _through(
        self, number: int, units: ScalarUnits, effects: Float[Tensor, "row unit"], n_pos: int
    ) -> tuple[Demand, Float[Tensor, " row"]]:
        """What the units of a sub-layer read, each for an effect of what it writes."""
        direction, bias = units.pulled(effects, n_pos)
        if not units.reads_stream:
            direction, constant = self._pulled(
                self.frozen.branches[number], direction, slice(n_pos)
            )
            bias = bias + constant
        return direction, bias.sum(-1)

    def _skipped(self, number: int, demand: Demand) -> tuple[Demand, Float[Tensor, " row"]]:
        """What the skip of a sub-layer's units reads for what it writes along directions."""
        direction = self.at_units(number, demand) @ self.skip(number).mT
        branch, positions = self.frozen.branches[number], slice(direction.shape[1])
        pulled, constant = self._pulled(branch, direction, positions)
        return pulled, constant.sum(-1)

    def skip(self, number: int) -> Float[Tensor, "d_model d_model"]:
        """W_skip of a sub-layer's units.

        Raises:
            TypeError: they have none.
        """
        skip = self.units[number].skip
        if skip is None:
            raise TypeError(f"The units of sub-layer {number} have no skip.")
        return skip

    def _pulled(
        self, branch: Branch, direction: Float[Tensor, "*rows d_model"], at: Tensor | slice
    ) -> tuple[Tensor, Tensor]:
        """A direction of a sub-layer's normalized input as one of the stream, and the constant."""
        norm, none = branch.step.input_norm, direction.new_zeros(direction.shape[:-1])
        if not isinstance(norm, ScaledNorm):
            return direction, none
        scale = self.frozen.at(Place(Point.SCALE, branch.layer, branch.step.norm.name))[at]
        pulled, constant = norm.pull_back(direction, scale)
        return pulled, none if constant is None else constant

    # ---- what is where -------------------------------------------------------------------------

    def attentions(self, before: int) -> list[Branch]:
        """The attentions that read the stream after so many writers, and whose heads carry."""
        return [
            branch
            for number, branch in enumerate(self.frozen.branches)
            if branch.before == before
            and isinstance(branch.step.f, Attention)
            and number not in self.units
        ]

    def sources(self, number: int) -> list[int]:
        """The sub-layers whose units write to a sub-layer, by their indices among the branches."""
        return [source for source, units in self.units.items() if number in units.targets]

    def carrier_of_skip(self, number: int) -> int:
        """The index of the skip of a sub-layer's units among the carriers."""
        return 1 + len(self.heads) + self.skips.index(number)

    def skips_after(self, before: int) -> list[int]:
        """The sub-layers with a skip that read the stream after so many writers."""
        return [number for number in self.skips if self.frozen.branches[number].before == before]

    def _error(self, number: int, branch: Branch) -> bool:
        """Whether a sub-layer writes something that is no unit, head or bias."""
        if number in self.units:
            return self.units[number].error is not None
        return number not in self.passed and not isinstance(branch.step.f, Attention)

    def _starts(self) -> list[int]:
        starts = [self.columns.first_unit]
        for n in self.columns.n_units:
            starts.append(starts[-1] + n)
        return starts[:-1]

    @property
    def starts(self) -> list[int]:
        """The first column of embeddings, errors and units of each sub-layer, and the bias."""
        columns = self.columns
        return [*range(0, columns.bias + 1, columns.n_pos), *self.first.values()]

    @property
    def is_bidirectional(self) -> bool:
        """Whether a position may read later ones."""
        masks = (
            branch.step.f.masking.mask
            for branch in self.frozen.branches
            if isinstance(branch.step.f, Attention)
        )
        return any(mask.is_bidirectional for mask in masks)

    def positions(self, columns: Int[Tensor, " row"]) -> Int[Tensor, " row"]:
        """The position of each column; 0 for the bias, which is at all of them."""
        pos = (columns % self.columns.n_pos) * (columns < self.columns.bias)
        for number, units in self.units.items():
            inside = self.inside(number, columns)
            pos[inside] = units.places(columns[inside] - self.first[number])[0]
        return pos

    def inside(self, number: int, columns: Int[Tensor, " row"]) -> Bool[Tensor, " row"]:
        """Which columns are those of the units of a sub-layer."""
        first = self.first[number]
        return (columns >= first) & (columns < first + self.units[number].n)
