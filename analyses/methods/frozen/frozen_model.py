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

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.frozen.frozen_attention import ByAnswer, FrozenAttention
from analyses.methods.frozen.written import Branch, entry_of, output_norm, written_by
from interp.cache import Cache
from interp.metrics import at_least_float32
from interp.model import MLP, Attention, Network, Norm, ScaledNorm
from interp.points import Place, Point

Directions = Float[Tensor, "answer d_model"]
KEPT_BYTES = 2**29
"""The most bytes of patterns that are kept; those of further layers are formed when asked for."""


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
        vectors: what each writer adds to the stream.
        branches: the sub-layers, in the order of the forward.
        branch_of: the sub-layer of each head and MLP, by its index among the writers.
        entry: the place of each embedding.
        end: the place of the last stream.
    """

    def __init__(self, model: Network, cache: Cache, real: Int[Tensor, " pos"]) -> None:
        self.stack, self.cache, self.real = model.stacks[0], cache, real
        self._tensors: dict[Place, Tensor] = {}
        written, self.branches = written_by(model, self.at)
        self.parts = tuple(written)
        first = next(iter(written.values()))
        self.vectors = first.new_empty(len(written), *first.shape)
        for number, part in enumerate(self.parts):
            self.vectors[number] = written.pop(part)  # and freed, before the next is copied
        self.entry = dict(zip(self.parts, entry_of(model), strict=False))
        self.end = Place(self.stack.end.point, len(self.stack.blocks) - 1)
        self.branch_of = {writer: branch for branch in self.branches for writer in branch.writers}
        self._attentions: dict[int, FrozenAttention] = {}
        self._kept = 0

    def read(self, place: Place) -> Tensor:
        """The tensor at a place, at the positions of the prompt."""
        return at_least_float32(self.cache[place][0, self.real])

    def at(self, place: Place) -> Tensor:
        """The same, derived once and kept."""
        if place not in self._tensors:
            self._tensors[place] = self.read(place)
        return self._tensors[place]

    def normalized_input(self, branch: Branch) -> Float[Tensor, "pos d_model"]:
        """What a sub-layer reads: the stream before it, after its norm."""
        x, norm = self.vectors[: branch.before].sum(0), branch.step.input_norm
        if not isinstance(norm, ScaledNorm):
            return x
        scale = self.at(Place(Point.SCALE, branch.layer, branch.step.norm.name))
        return norm.by_scale(x[None], scale[None])[0]

    def biases(self, branch: Branch) -> Float[Tensor, "bias pos d_model"]:
        """What the biases of a sub-layer and of the norm of its output add to the stream."""
        end = branch.writers.stop
        while end < len(self.parts) and self.parts[end].kind == "bias":
            end += 1
        return self.vectors[branch.writers.stop : end]

    def attention(self, branch: Branch) -> FrozenAttention:
        """The attention of a sub-layer."""
        attention, layer = branch.step.f, branch.layer
        if not isinstance(attention, Attention):
            raise TypeError(f"The sub-layer of layer {layer} is no attention.")
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

    def read_by_logits(self, direction: Directions, pos: int) -> Reading:
        """What the logits at a position read, along a direction of the final norm's output."""
        where, norm = torch.tensor([pos]), self.stack.final_norm
        scale = Place(Point.FINAL_SCALE)
        return self._reading("", len(self.parts), where, direction[:, None], norm, scale)

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
        bias = direction.new_zeros(len(direction))
        if isinstance(norm, ScaledNorm):
            direction, constant = norm.pull_back(direction, self.at(scale)[where])
            bias = bias if constant is None else constant.sum(-1)
        return Reading(letter, where, direction, bias, self.vectors[:before])


def places_of_run(model: Network) -> list[Place]:
    """The places that a run must record for a :class:`FrozenModel`."""
    points = {Point.SCALE, Point.FINAL_SCALE, Point.PRE, Point.POST}
    points |= {Point.FEATURES, Point.FEATURES_ERROR}
    for _, step in model.stacks[0].branches():
        points.add(step.f.hidden_point)
        points.add(step.points.reads)
        if isinstance(step.f, Attention):
            at = step.f.points
            points |= {at.q, at.k, at.v, at.pattern}
    entry = set(entry_of(model))
    return [place for place in model.layout if place.point in points or place in entry]
