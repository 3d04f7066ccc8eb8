"""Measures one batch of texts: a forward with fused attention, then the patterns layer by layer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.heads import (
    DISTANCE,
    ENTROPY,
    FIRST,
    NORMALIZED,
    VARIANCE,
    Attentions,
    AveragesOfLayers,
    Measured,
    QueryAverages,
    every_attention,
    offsets_by_name,
    output_factor,
    pattern_at,
    visible_keys,
    written_norms,
)
from analyses.results import Moments
from analyses.scan_heads.cells import OF_REPETITION, TokenKinds, cells_of, in_random_order
from analyses.scan_heads.massive import count_massive
from analyses.scan_heads.totals import Sizes, Totals, lower_ends, priority
from interp import Transformer, run
from interp.cache import Cache
from interp.metrics import at_least_float32
from interp.model import PAD, Attention, Batch, ImageInput
from interp.points import Place, Point
from interp.prompts import by_length

WRITE = "write"
"""‖z W_O‖ over the norm of the stream."""
PLAIN, WEIGHTED = range(2)
CHUNK = 2**25
"""The most attention weights of a layer over all texts of a batch, which may be one text alone."""
RECORDED = 2**28
"""The most bytes that a forward records, unless one text alone takes more."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What is measured of a model.

    Attributes:
        model: the model.
        offsets: number of offsets at which masses are measured.
        max_length: maximum number of tokens of a text.
        shuffled: one text in so many is also measured in random order.
        seed: seed of random orders and of the sample.
    """

    model: Transformer
    offsets: int
    max_length: int
    shuffled: int
    seed: int

    def __getstate__(self) -> dict[str, object]:
        """The attributes that are given; what follows from them, workers compute themselves."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def attentions(self) -> tuple[Attentions, ...]:
        """The attentions of the model."""
        return every_attention(self.model)

    @cached_property
    def kinds(self) -> TokenKinds:
        """The classes of the model's tokens."""
        return TokenKinds({}, None, None) if self.reads_images else TokenKinds.of(self.model)

    @property
    def reads_images(self) -> bool:
        """Whether the tokens are patches."""
        return isinstance(self.model.stacks[0].input, ImageInput)

    @property
    def bos(self) -> int:
        """The id of BOS; one that no token has, if there is none."""
        bos = self.model.config.tokens.bos
        return PAD if bos is None or self.reads_images else bos

    @property
    def is_cut(self) -> bool:
        """Whether a text can be cut at its end without a change of what is before."""
        return len(self.attentions) == 1 and not self.attentions[0].is_bidirectional

    @cached_property
    def heads(self) -> list[tuple[Attentions, int, int]]:
        """Attention, layer and head of each unit."""
        return [
            (kind, layer, head)
            for kind in self.attentions
            for layer, attn in enumerate(kind.layers)
            for head in range(attn.n_heads)
        ]

    @cached_property
    def bytes_per_token(self) -> int:
        """The most that a forward records of a token: q, k, v, z and the stream in each block."""
        layers = [attn for kind in self.attentions for attn in kind.layers]
        projected = sum(2 * (attn.n_heads + attn.kv_heads) * attn.d_head for attn in layers)
        return (projected + 2 * len(layers) * self.model.d_model) * self.model.dtype.itemsize

    def forwards(
        self, batches: Sequence[Batch], rows: int
    ) -> Iterator[tuple[Int[Tensor, " row"], tuple[Batch, ...]]]:
        """The indices and the batches of the texts of each forward, within a bounded memory."""
        n_heads = max(attn.n_heads for kind in self.attentions for attn in kind.layers)
        return by_length(batches, rows, CHUNK // n_heads, RECORDED // self.bytes_per_token)

    @cached_property
    def units(self) -> dict[tuple[str | None, int], slice]:
        """The units of each attention and layer."""
        slices: dict[tuple[str | None, int], slice] = {}
        start = 0
        for kind in self.attentions:
            for layer, attn in enumerate(kind.layers):
                slices[kind.name, layer] = slice(start, start + attn.n_heads)
                start += attn.n_heads
        return slices

    @cached_property
    def factors(self) -> dict[tuple[str | None, int], Float[Tensor, "head d_head rank"]]:
        """What gives the length of a head's output, of each attention and layer."""
        return {
            (kind.name, layer): output_factor(attn)
            for kind in self.attentions
            for layer, attn in enumerate(kind.layers)
        }

    @cached_property
    def statistics(self) -> tuple[str, ...]:
        """The names of the statistics, with the mass on the first token as ``FIRST``."""
        selves = [kind for kind in self.attentions if not kind.is_cross]
        both_ways = any(kind.is_bidirectional for kind in selves)
        repeated = [] if self.reads_images else OF_REPETITION[int(both_ways and len(selves) == 1) :]
        near = offsets_by_name(self.offsets, bidirectional=both_ways)
        kinds = self.kinds.names
        masses = (FIRST, *near, *repeated, *kinds)
        return (ENTROPY, NORMALIZED, DISTANCE, VARIANCE, *masses, WRITE)

    @cached_property
    def lower_ends(self) -> list[int]:
        """The smallest distance of each bucket."""
        return lower_ends(self.farthest)

    @cached_property
    def bucket(self) -> Int[Tensor, " distance"]:
        """The bucket of each distance."""
        ends = torch.tensor(self.lower_ends)
        return torch.searchsorted(ends, torch.arange(self.farthest + 1), right=True) - 1

    @cached_property
    def farthest(self) -> int:
        """The largest distance between two tokens."""
        longest = 1
        for stack in self.model.stacks:
            read = stack.input
            if isinstance(read, ImageInput):
                longest = max(longest, read.patches.n_special + read.patches.n_patches)
            else:
                longest = max(longest, read.n_ctx)
        return longest - 1

    def measured(self, kind: Attentions, batches: Sequence[Batch]) -> Measured:
        """The statistics of one attention on some texts."""
        query, bidirectional = batches[kind.query], kind.is_bidirectional
        if kind.is_cross:
            return Measured(query.is_real, FIRST, {}, {}, {}, crossing=True)
        near = offsets_by_name(self.offsets, bidirectional=bidirectional)
        cells = {}
        if not self.reads_images:
            cells = cells_of(query, self.kinds, bidirectional=bidirectional)
        return Measured(query.is_real, FIRST, near, cells, {}, crossing=False)

    def repeated(self, kind: Attentions, batches: Sequence[Batch]) -> Measured:
        """Those of repetition alone."""
        query, none = batches[kind.query], TokenKinds({}, None, None)
        cells = {}
        if not kind.is_cross:
            cells = cells_of(query, none, bidirectional=kind.is_bidirectional)
        return Measured(query.is_real, FIRST, {}, cells, {}, crossing=kind.is_cross)

    def resid(self, kind: Attentions, layer: int, point: Point = Point.RESID_PRE) -> Place:
        """The stream before (or after) a block of the stack of an attention's queries."""
        return self.of_stream(kind.query, layer, point)

    def of_stream(self, stack: int, layer: int, point: Point) -> Place:
        """A point of the stream of a stack."""
        stacks = self.model.stacks
        return Place(point, layer, stack=stacks[stack].name if len(stacks) > 1 else None)


Forward = tuple[Int[Tensor, " text"], tuple[Batch, ...]]
"""The numbers of some texts in the corpus, and their tokens in each stack, padded on the right."""


@torch.no_grad()
def measured(plan: Plan, sizes: Sizes, forward: Forward) -> Totals:
    """The numbers of some texts.

    Args:
        plan: what is measured.
        sizes: the sizes of what is kept.
        forward: the texts.
    """
    totals, (numbers, batches) = Totals(sizes), forward
    value, control = _values(plan, batches, totals)
    shuffled = [row for row, number in enumerate(numbers.tolist()) if number % plan.shuffled == 0]
    if shuffled and not plan.reads_images:
        rows = torch.tensor(shuffled, device=batches[0].ids.device)
        seeds = [priority(number, plan.seed + 1) for number in numbers[shuffled].tolist()]
        texts = [
            in_random_order(batch.rows(rows).padded_right(), plan.bos, seeds) for batch in batches
        ]
        repeated, _ = _values(plan, texts, None)
        columns = [n for n, name in enumerate(plan.statistics) if name in OF_REPETITION]
        places = torch.tensor(shuffled)[:, None], torch.tensor(columns)
        control[:, :, places[0], places[1]] = repeated[..., columns]
    totals.value = Moments.of(value.transpose(-1, -2))
    has = ~control.isnan()
    totals.control = torch.stack([control.where(has, 0).sum(2), has.sum(2).double()])
    totals.draw(numbers, value[PLAIN].transpose(0, 1), plan.seed)
    counts = totals.counts
    counts["texts"] += len(numbers)
    counts["tokens"] += int(batches[-1].is_real.sum())
    counts["without_bos"] += sum(int((batch.ids[:, 0] != plan.bos).any()) for batch in batches)
    if not plan.reads_images:
        for stack, batch in enumerate(batches):
            tokens = batch.ids[batch.is_real].cpu()
            totals.tokens[stack] += tokens.bincount(minlength=totals.tokens.shape[1])
    return totals


@torch.no_grad()
def _values(
    plan: Plan, batches: Sequence[Batch], totals: Totals | None
) -> tuple[
    Float[Tensor, "weighting unit text statistic"], Float[Tensor, "weighting unit text statistic"]
]:
    """The statistics of each text and their controls; other numbers are added to the totals.

    Without totals, the statistics of repetition alone are measured: of texts in random order.
    """
    model, whole = plan.model, totals is not None
    contexts = model.contexts([*batches])
    wanted = [
        place
        for kind in plan.attentions
        for layer in range(len(kind.layers))
        for place in _places(plan, kind, layer, whole=whole)
    ]
    end = len(model.stacks[-1].blocks)
    cache = run(model, *batches, record=wanted, stop_at_layer=end).cache  # no logits
    shape = (2, len(plan.heads), len(batches[0].ids), len(plan.statistics))
    value, control = (torch.full(shape, torch.nan, dtype=torch.float64) for _ in range(2))
    for kind in plan.attentions:
        layers = _Layers(plan, kind, batches, cache, totals)
        if not layers.columns:
            continue
        for layer, attn in enumerate(kind.layers):
            visible = visible_keys(attn, contexts[kind.query], batches[kind.key].ids.shape[1])
            units = plan.units[kind.name, layer]
            of_layer, uniform = layers.statistics(layer, attn, visible)
            value[:, units, :, layers.columns] = of_layer
            control[:, units, :, layers.columns] = uniform.expand_as(of_layer)
            if totals is not None:
                share = layers.written(layer)
                value[PLAIN, units, :, -1] = share
                control[PLAIN, units, :, -1] = share.mean(0).expand_as(share)
    if totals is not None:
        _count_massive(plan, batches, cache, totals)
        repeated = [n for n, name in enumerate(plan.statistics) if name in OF_REPETITION]
        control[..., repeated] = torch.nan  # that of texts in random order
    return value, control


def _places(plan: Plan, kind: Attentions, layer: int, *, whole: bool) -> list[Place]:
    """The places of a layer that are recorded."""
    places = [*kind.places(layer)]
    if whole:
        places += [kind.z_place(layer), plan.resid(kind, layer)]
        places += [plan.resid(kind, layer, Point.RESID_POST)]
    return places


def _count_massive(plan: Plan, batches: Sequence[Batch], cache: Cache, totals: Totals) -> None:
    row = 0
    for number, (stack, batch) in enumerate(zip(plan.model.stacks, batches, strict=True)):
        for layer in range(len(stack.blocks)):
            x = cache[plan.of_stream(number, layer, Point.RESID_POST)]
            count_massive(totals.massive[:, row], x, batch.is_real, batch.ids)
            row += 1


class _Layers:
    """The layers of one attention on a batch; layers with one mask share what it determines."""

    def __init__(
        self,
        plan: Plan,
        kind: Attentions,
        batches: Sequence[Batch],
        cache: Cache,
        totals: Totals | None,
    ) -> None:
        self.plan, self.kind, self.cache, self.totals = plan, kind, cache, totals
        self.query, self.key = batches[kind.query], batches[kind.key]
        self.measured = (plan.repeated if totals is None else plan.measured)(kind, batches)
        names = [*self.measured.cells] if totals is None else self.measured.names
        self.columns = [plan.statistics.index(name) for name in names]
        self.averages = AveragesOfLayers(self.measured)

    def statistics(
        self, layer: int, attn: Attention, visible: Tensor
    ) -> tuple[Float[Tensor, "weighting head text statistic"], Float[Tensor, "1 1 text statistic"]]:
        """The statistics of a layer, and those of uniform weights."""
        pattern_place, v_place = self.kind.places(layer)
        pattern = pattern_at(self.cache, pattern_place)
        averages = self.averages.of(visible, pattern.dtype)
        factor = self.plan.factors[self.kind.name, layer]
        norms = written_norms(factor, attn.values(self.cache[v_place]))
        n_heads = pattern.shape[1]
        shape = (2, n_heads, len(pattern), len(self.columns))
        value = torch.empty(shape, dtype=torch.float64)
        units = self.plan.units[self.kind.name, layer]
        measure = averages.of_cells if self.totals is None else averages.of
        for rows, heads in averages.parts(n_heads):
            part = pattern[rows, heads]
            value[PLAIN, heads, rows] = measure(part, rows).transpose(0, 1).double().cpu()
            if self.totals is not None:
                some = slice(units.start + heads.start, units.start + heads.stop)
                self._add_distances(averages, part, rows, some)
                self._add_tokens(part, rows, some)
            weighted = averages.scratch("weighted", *part.shape)
            torch.mul(part, norms[rows, heads, None], out=weighted)
            total = weighted.sum(-1, keepdim=True)
            weighted /= total.where(total > 0, 1)
            value[WEIGHTED, heads, rows] = measure(weighted, rows).transpose(0, 1).double().cpu()
        if self.totals is None:
            return value, torch.full((1, 1, len(pattern), len(self.columns)), torch.nan).double()
        if not self.kind.is_cross:
            sides = averages.uniform_by_distance
            _add_sides(self.plan, self.totals.distances[1, units], sides)
        return value, averages.of_uniform[None, None].double().cpu()

    def written(self, layer: int) -> Float[Tensor, "head text"]:
        """‖z W_O‖ over the norm of the stream, the mean over the tokens of each text."""
        z, stream = self.cache[self.kind.z_place(layer)], self.plan.resid(self.kind, layer)
        norms = at_least_float32(self.cache[stream]).norm(dim=-1)
        real = self.query.is_real
        factor = self.plan.factors[self.kind.name, layer]
        share = written_norms(factor, z) / norms.where(norms > 0, torch.nan)[:, None]
        mean = share.where(real[:, None], 0).sum(-1) / real.sum(-1)[:, None]
        return mean.T.double().cpu()

    def _add_distances(
        self, averages: QueryAverages, part: Tensor, rows: slice, units: slice
    ) -> None:
        if self.totals is not None and not self.kind.is_cross:
            sides = averages.by_distance(part, rows)
            _add_sides(self.plan, self.totals.distances[0, units], sides)

    def _add_tokens(self, part: Tensor, rows: slice, units: slice) -> None:
        """Add the masses of query tokens, of key tokens, and of the strongest pair of each query.

        Without those on the first key, to which heads attend when they find nothing else.
        """
        if self.totals is None or self.plan.reads_images or part.shape[-1] == 1:
            return
        real, d_vocab = self.query.is_real[rows], self.plan.model.d_vocab
        ids, keys = self.query.ids[rows], self.key.ids[rows, 1:]
        counted = real[:, None].to(part.dtype)
        of_query = (part.sum(-1) - part[..., 0]).clamp(min=0) * counted
        of_key = (counted[:, :, None] @ part)[:, :, 0, 1:]
        strongest, place = part[..., 1:].max(-1)
        key = keys[:, None].expand(-1, part.shape[1], -1).gather(-1, place)
        pairs = ids[:, None] * d_vocab + key
        for name, tokens, mass in (
            ("queries", ids[:, None].expand_as(of_query), of_query),
            ("keys", keys[:, None].expand_as(of_key), of_key),
            ("pairs", pairs, strongest * counted),
        ):
            sketch = self.totals.sketches[name]
            sketch.add(units, *(x.transpose(0, 1).flatten(1) for x in (tokens, mass)))


def _add_sides(plan: Plan, distances: Tensor, sides: tuple[Tensor, Tensor]) -> None:
    """Add masses by distance, of keys up to the query and after it, to their buckets."""
    for side, mass in enumerate(sides):
        bucket = plan.bucket[: mass.shape[1]]
        added = torch.zeros(len(mass), distances.shape[-1], dtype=torch.float64)
        distances[:, side] += added.index_add_(1, bucket, mass.double().cpu())
