"""One prompt's run as a linear network: patterns, divisors of norms and gates keep their values.

A *reading* is what a head, an MLP or the logits take from the stream x = Σ_u u along a direction g
of what they write; it is a sum over the writers u, at all positions that are read:

    logits   norm(x_i)·g                                                       = Σ_u u_i·D + biases
    v        Σ_j A_ij (norm(x_j) W_V + b_V) W_O·g                              A is fixed
    k        Σ_j Λ_ij s_ij,   s_ij = q_i·k_j / scale                           Λ and q are fixed
    q        the same sum                                                      Λ and k are fixed
    MLP      Σ_n r_n (norm(x_i) W_in + b_in)_n (W_out·g)_n,   r = post / pre   r is fixed

Λ is that of :mod:`analyses.methods.frozen.score_gradients`. D, the direction at the stream, is the
``direction`` of a reading.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.frozen.frozen_attention import ByAnswer, FrozenAttention
from analyses.methods.frozen.written import (
    Branch,
    biases_of,
    entry_of,
    output_norm,
    writers_of,
    written_by,
)
from interp.cache import Cache
from interp.metrics import at_least_float32
from interp.model import MLP, Attention, Context, Network, NoKVCache, Norm, ScaledNorm
from interp.points import Place, Point

Directions = Float[Tensor, "answer d_model"]
Pattern = Float[Tensor, "head query key"]
KEPT_BYTES = 2**29
"""The most bytes of patterns that are kept; those of further layers are formed when asked for."""
BLOCK_BYTES = 2**25
"""The most bytes of a block of a pattern that is formed anew."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What is read from the stream, as a sum over writers and positions.

    Attributes:
        letter: what a head reads it as, ``q``, ``k`` or ``v``; ``""`` for an MLP and the logits.
        pos: the positions that are read.
        direction: D at these positions, for one or several answers.
        bias: the terms of biases of the reader.
        vectors: what each writer before the reader adds to the stream.
    """

    letter: str
    pos: Int[Tensor, " pos"]
    direction: Float[Tensor, "answer pos d_model"]
    bias: Float[Tensor, " answer"]
    vectors: Float[Tensor, "writer every_pos d_model"]

    @cached_property
    def terms(self) -> Float[Tensor, "answer writer pos"]:
        """u·D for each writer before the reader."""
        vectors = self.vectors
        if len(self.pos) < vectors.shape[1]:
            vectors = vectors[:, self.pos]
        return einsum(vectors, self.direction, "u pos m, answer pos m -> answer u pos")

    @property
    def total(self) -> Float[Tensor, " answer"]:
        """The sum of all terms and biases."""
        return self.terms.sum((1, 2)) + self.bias

    def plus(self, other: "Reading") -> "Reading":
        """The sum of two readings of the same reader and letter."""
        direction, bias = self.direction + other.direction, self.bias + other.bias
        return replace(self, direction=direction, bias=bias)


class FrozenModel:
    """The run of one prompt.

    Args:
        model: a model with one stack, whose stream is a sum of what is written.
        cache: cache of a run of one prompt that recorded :func:`places_of_run`.
        real: the columns that hold tokens, which are the positions here.

    Attributes:
        parts: what each writer is, in the order of the forward.
        embeddings: what the writers before the first sub-layer add to the stream.
        bias_vectors: what each bias adds to the stream, by its index among the writers.
        branches: the sub-layers, in the order of the forward.
        branch_of: the sub-layer of each head and MLP, by its index among the writers.
        entry: the place of each embedding.
        end: the place of the last stream.
    """

    def __init__(self, model: Network, cache: Cache, real: Int[Tensor, " pos"]) -> None:
        self.stack, self.cache, self.real = model.stacks[0], cache, real
        self._tensors: dict[Place, Tensor] = {}
        self._with_neurons = {place.layer for place in cache if place.point is Point.POST}
        written, self.branches = writers_of(model)
        self.parts = tuple(written)
        self.entry = dict(zip(self.parts, entry_of(model), strict=False))
        self.embeddings = torch.stack([self.read(place) for place in self.entry.values()]).sum(0)
        self.bias_vectors: dict[int, Tensor] = {}
        for branch in self.branches:
            biases = biases_of(branch, self.at, self.embeddings)
            self.bias_vectors |= dict(zip(branch.biases, biases, strict=True))
        self.end = Place(self.stack.end.point, len(self.stack.blocks) - 1)
        self.branch_of = {writer: branch for branch in self.branches for writer in branch.writers}
        self._attentions: dict[int, FrozenAttention] = {}
        self._kept = 0

    @cached_property
    def vectors(self) -> Float[Tensor, "writer pos d_model"]:
        """What each writer adds to the stream: a tensor for each head, computed when asked for."""
        vectors = self.embeddings.new_empty(len(self.parts), *self.embeddings.shape)
        for number, place in enumerate(self.entry.values()):
            vectors[number] = self.read(place)
        for branch in self.branches:
            vectors[branch.writers.start : branch.writers.stop] = self.written(branch)
        for number, bias in self.bias_vectors.items():
            vectors[number] = bias
        return vectors

    def written(self, branch: Branch) -> Float[Tensor, "writer pos d_model"]:
        """What the heads or the MLP of a sub-layer add to the stream; computed at each call."""
        has_neurons = branch.layer in self._with_neurons
        return written_by(branch, self.read, has_neurons=has_neurons)

    def read(self, place: Place) -> Tensor:
        """The tensor at a place, at the positions of the prompt."""
        return at_least_float32(self.cache[place][0, self.real])

    def at(self, place: Place) -> Tensor:
        """The same, derived once and kept."""
        if place not in self._tensors:
            self._tensors[place] = self.read(place)
        return self._tensors[place]

    def normalized_input(self, branch: Branch) -> Float[Tensor, "pos d_model"]:
        """What a sub-layer with features reads: the stream before it, after its norm."""
        return self.read(replace(branch.step.source(), layer=branch.layer))

    def biases(self, branch: Branch) -> list[Float[Tensor, "pos d_model"]]:
        """What the biases of a sub-layer and of the norm of its output add to the stream."""
        return [self.bias_vectors[number] for number in branch.biases]

    def attention(self, branch: Branch) -> FrozenAttention:
        """The attention of a sub-layer."""
        attention, layer = attention_of(branch), branch.layer
        if layer in self._attentions:
            return self._attentions[layer]
        at = attention.points
        q, k, v = (self.at(Place(point, layer)) for point in (at.q, at.k, at.v))
        whole = at_least_float32(self.cache[Place(at.pattern, layer)][0])
        pattern = whole[:, self.real][..., self.real]
        frozen = FrozenAttention(attention, q, k, v, pattern)
        if self._kept + pattern.nbytes <= KEPT_BYTES:
            self._attentions[layer] = frozen
            self._kept += pattern.nbytes
        return frozen

    @property
    def keeps_patterns(self) -> bool:
        """Whether the patterns of all layers take no more than :data:`KEPT_BYTES`."""
        n_pos, size = len(self.embeddings), self.embeddings.element_size()
        return n_pos * n_pos * size * sum(map(_heads_of, self.branches)) <= KEPT_BYTES

    def patterns(self, branch: Branch) -> Iterator[tuple[slice, slice, Pattern]]:
        """The pattern of a sub-layer in blocks: queries, the keys they may attend to, and the part.

        If patterns are kept, that is one block; else blocks are formed anew from queries and keys
        at each call, each of at most :data:`BLOCK_BYTES` (but at least one query).
        """
        n_pos, size = len(self.embeddings), self.embeddings.element_size()
        if self.keeps_patterns:
            every = slice(0, n_pos)
            yield every, every, self.attention(branch).pattern
            return
        attention, layer = attention_of(branch), branch.layer
        q, k = (
            self.cache[Place(point, layer)][:, self.real]
            for point in (attention.points.q, attention.points.k)
        )
        q, k = attention.with_positions(q, k, Context.plain(q[:, :, 0]))
        is_causal = not attention.masking.mask.is_bidirectional
        together = max(1, BLOCK_BYTES // (n_pos * size * attention.n_heads))
        for first in range(0, n_pos, together):
            end = min(first + together, n_pos)
            stop = end if is_causal else n_pos
            context = Context.plain(q[:, :stop, 0]).narrowed(slice(first, end), NoKVCache())
            scores = attention.scores(q[:, first:end], k[:, :stop], context)
            pattern = attention.softmax(scores, in_place=True)[0]
            yield slice(first, end), slice(0, stop), at_least_float32(pattern)

    def logits_direction(
        self, direction: Directions, pos: int
    ) -> tuple[Directions, Float[Tensor, " answer"]]:
        """A direction of the final norm's output at a position as one of the stream; biases."""
        pulled, bias = self._pulled(
            torch.tensor([pos]), direction[:, None], self.stack.final_norm, Place(Point.FINAL_SCALE)
        )
        return pulled[:, 0], bias

    def read_by_logits(self, direction: Directions, pos: int) -> Reading:
        """What the logits at a position read, along a direction of the final norm's output."""
        pulled, bias = self.logits_direction(direction, pos)
        return Reading("", torch.tensor([pos]), pulled[:, None], bias, self.vectors)

    def readings(
        self, writer: int, pos: int, direction: Directions, *, scores: bool
    ) -> list[Reading]:
        """What a head or an MLP reads for what it writes at a position, along a direction.

        A head's ``v``, and an MLP's only reading, sum to what it writes along the direction. Each
        of a head's ``k`` and ``q`` sums to the part of it that scores by content add to attention
        by mask and position alone; they are left out without ``scores``. A mixture of experts has
        no readings.
        """
        branch = self.branch_of[writer]
        normed = output_norm(branch.layer, branch.step)
        g = direction
        if normed is not None:
            g, _ = normed[0].pull_back(direction, self.at(normed[1])[pos])
        f = branch.step.f
        if isinstance(f, Attention):
            head = writer - branch.writers[0]
            values = self._read_values(branch, f, head, pos, g)
            return [values, *(self._read_scores(branch, f, head, pos, g) if scores else ())]
        return [self._read_by_mlp(branch, f, pos, g)] if isinstance(f, MLP) else []

    def _read_values(
        self, branch: Branch, attn: Attention, head: int, pos: int, g: Directions
    ) -> Reading:
        frozen, everywhere = self.attention(branch), torch.arange(self.vectors.shape[1])
        along = g @ attn.W_O[head].mT.to(g.dtype)
        by_value = frozen.through_values(head, pos, along)
        none = along.new_zeros(len(along))
        return self._read_projected("v", branch, everywhere, by_value, none)

    def _read_scores(
        self, branch: Branch, attn: Attention, head: int, pos: int, g: Directions
    ) -> list[Reading]:
        frozen, everywhere = self.attention(branch), torch.arange(self.vectors.shape[1])
        along = g @ attn.W_O[head].mT.to(g.dtype)
        by_scores = frozen.by_scores(head, pos, along)
        by_query, of_query = frozen.through_query(head, pos, by_scores)
        return [
            self._read_projected("q", branch, torch.tensor([pos]), by_query[:, [pos]], of_query),
            self._read_projected(
                "k", branch, everywhere, *frozen.through_keys(head, pos, by_scores)
            ),
        ]

    def _read_projected(
        self,
        letter: str,
        branch: Branch,
        where: Int[Tensor, " pos"],
        by_output: ByAnswer,
        constant: Float[Tensor, " answer"],
    ) -> Reading:
        """What is read along a direction of queries, keys or values."""
        attention = self.attention(branch).attention
        point = getattr(attention.points, letter)
        W, b = (x.to(by_output.dtype) for x in attention.projection(point))
        direction = einsum(by_output, W, "answer pos head d, head m d -> answer pos m")
        bias = einsum(by_output, b, "answer pos head d, head d -> answer") + constant
        return self._read_input(letter, branch, where, direction, bias)

    def _read_by_mlp(self, branch: Branch, mlp: MLP, pos: int, g: Directions) -> Reading:
        pre, post = (self.at(Place(at, branch.layer))[pos] for at in (Point.PRE, Point.POST))
        by_post = g @ mlp.W_out.mT.to(g.dtype)
        by_pre = by_post * torch.where(pre == 0, 0.0, post / pre)
        bias = by_post @ torch.where(pre == 0, post, 0.0)
        bias = bias if mlp.b_in is None else bias + by_pre @ mlp.b_in.to(g.dtype)
        direction = (by_pre @ mlp.W_in.mT.to(g.dtype))[:, None]
        return self._read_input("", branch, torch.tensor([pos]), direction, bias)

    def _read_input(
        self, letter: str, branch: Branch, where: Tensor, direction: Tensor, bias: Tensor
    ) -> Reading:
        """What is read along a direction of a sub-layer's input, after its norm."""
        step, scale = branch.step, Place(Point.SCALE, branch.layer, branch.step.norm.name)
        read = self._reading(letter, branch.before, where, direction, step.input_norm, scale)
        return replace(read, bias=read.bias + bias)

    def _reading(
        self, letter: str, before: int, where: Tensor, direction: Tensor, norm: Norm, scale: Place
    ) -> Reading:
        direction, bias = self._pulled(where, direction, norm, scale)
        return Reading(letter, where, direction, bias, self.vectors[:before])

    def _pulled(
        self, where: Tensor, direction: Tensor, norm: Norm, scale: Place
    ) -> tuple[Tensor, Tensor]:
        """A direction of what a norm writes as one of what it reads, and the biases' part."""
        bias = direction.new_zeros(len(direction))
        if isinstance(norm, ScaledNorm):
            direction, constant = norm.pull_back(direction, self.at(scale)[where])
            bias = bias if constant is None else constant.sum(-1)
        return direction, bias


def attention_of(branch: Branch) -> Attention:
    """The attention of a sub-layer.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(branch.step.f, Attention):
        raise TypeError(f"The sub-layer of layer {branch.layer} is no attention.")
    return branch.step.f


def _heads_of(branch: Branch) -> int:
    return branch.step.f.n_heads if isinstance(branch.step.f, Attention) else 0


def places_of_run(
    model: Network, *, without_neurons: Collection[int] = (), streams: bool = True
) -> list[Place]:
    """The places that a run must record for a :class:`FrozenModel`.

    Args:
        model: the model.
        without_neurons: the layers whose MLPs are not read through: their outputs are recorded in
            place of their neurons.
        streams: whether the streams that sub-layers read are recorded.
    """
    points = {Point.SCALE, Point.FINAL_SCALE, Point.PRE, Point.POST}
    points |= {Point.FEATURES, Point.FEATURES_ERROR}
    outputs = set[Place]()
    with_features = {place.layer for place in model.layout if place.point is Point.FEATURES}
    for layer, step in model.stacks[0].branches():
        points.add(step.f.hidden_point)
        if streams:
            points.add(step.points.reads)
        if isinstance(step.f, Attention):
            at = step.f.points
            points |= {at.q, at.k, at.v, at.pattern}
        elif isinstance(step.f, MLP) and layer in without_neurons:
            outputs.add(Place(step.f.out, layer))
        if layer in with_features:
            outputs.add(replace(step.source(), layer=layer))
    outputs |= set(entry_of(model))
    unread = {Place(p, layer) for p in (Point.PRE, Point.POST) for layer in without_neurons}
    # Errors of cross-layer transcoders, which the forward would form, follow from other places.
    unread |= {
        place
        for place, recipe in model.layout.items()
        if place.point is Point.FEATURES_ERROR and recipe.compute is None
    }
    return [
        place
        for place in model.layout
        if (place.point in points or place in outputs) and place not in unread
    ]
