"""What a part wrote at one position, carried to later positions by heads with frozen patterns.

    δ ↦ δ + Σ_h A_h N(δ) W_V W_O            at each attention; MLPs add nothing

δ is what one part wrote, and what heads made of it. Patterns, the divisors of norms (in N) and the
outputs of MLPs are those of the run, so that all of it is linear in δ.
"""

from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from analyses.methods.attribution import StreamWalk, point_of_terms
from analyses.methods.circuits import written_through
from interp.cache import Cache
from interp.errors import InvalidInput, UnknownPlace, nearest, shorten
from interp.metrics import at_least_float32
from interp.model import MLP, Attention, BlockNorm, Norm, ScaledNorm, Stack, Step, Sublayer
from interp.points import Place, Point

Stream = Float[Tensor, "batch pos d_model"]
Columns = Int[Tensor, " batch"]


@dataclass(frozen=True, eq=False)
class SourcePart:
    """A head, an MLP or an embedding.

    Attributes:
        point: the point of its hidden tensor, or of the embedding.
        layer: its layer; ``None`` for an embedding.
        branch: the step of its sub-layer; ``None`` for an embedding.
        head: the index of a head; 0 for an MLP.
    """

    point: Point
    layer: int | None = None
    branch: Step | None = None
    head: int = 0

    @classmethod
    def of(cls, stack: Stack, name: object) -> "SourcePart":
        """The part of a name.

        Raises:
            UnknownPlace: nothing that writes to the stream has this name.
        """
        prefix = "" if stack.name_in_places is None else f"{stack.name_in_places}."
        parts = {f"{prefix}{place.point.label}": cls(place.point) for place in stack.terms()}
        for layer, branch in stack.branches():
            f, point = branch.f, point_of_terms(branch)
            if not isinstance(f, Attention):
                parts[f"{prefix}L{layer}MLP"] = cls(point, layer, branch)
                continue
            before = "cross." if f.is_cross else prefix
            for head in range(f.n_heads):
                parts[f"{before}L{layer}H{head}"] = cls(point, layer, branch, head)
        if not isinstance(name, str) or name not in parts:
            raise UnknownPlace(
                f"source={shorten(name)} names no head, MLP or embedding of this stack."
                f"{nearest(str(name), parts, cutoff=0.4)}"
            )
        return parts[name]


@dataclass(frozen=True, eq=False)
class Source:
    """What a part wrote at one position.

    Attributes:
        stream: the term that it adds to the stream; zero at other positions.
        steps: the number of steps of the stack up to and with that of the part.
    """

    stream: Stream
    steps: int


@dataclass(frozen=True, eq=False)
class Carried:
    """What a part and the heads that read it add to a stream, at one column of each row.

    Attributes:
        whole: all of it, after the norm before the reader.
        alone: what the part itself adds there.
        heads: for each attention on the way, by its step, the outputs of its heads: what they make
            of all that is carried to them, and of what the part itself wrote.
    """

    whole: Float[Tensor, "batch d_model"]
    alone: Float[Tensor, "batch d_model"]
    heads: dict[Step, tuple[Float[Tensor, "batch head d_model"], ...]]


class FrozenStack:
    """A stack with the patterns, divisors and outputs of MLPs of a run.

    Attributes:
        stack: the stack.
        steps: the residual steps, each with its layer.
    """

    def __init__(self, stack: Stack, cache: Cache) -> None:
        self.stack, self.cache = stack, cache
        layers = range(len(stack.blocks))
        self.steps = [(layer, step) for layer in layers for step in stack.block(layer).steps]

    def source(self, part: SourcePart, columns: Columns) -> Source:
        """What a part wrote at one column of each row."""
        rows = torch.arange(len(columns), device=columns.device)
        walk = StreamWalk(self.stack, self.cache, rows, columns)
        if part.branch is None or part.layer is None:
            x = self._only(walk, walk.at(walk.place(part.point)))
            return Source(self._embedded(x), 0)
        hidden = walk.at(walk.place(part.point, part.layer))
        x = self._only(walk, _output(part.branch.f, hidden, part.head))
        number = self._number(part.branch)
        x = self._normed(part.branch.norms.output, part.layer, x)
        return Source(self._normed(self.steps[number][1].norms.sum, part.layer, x), number + 1)

    def carry(self, source: Source, until: tuple[int, Step] | None, columns: Columns) -> Carried:
        """Carry what a part wrote to the input of a step's sub-layer, or to the end of the stack.

        Args:
            source: what the part wrote.
            until: the step, with its layer; ``None`` for the end of the stack.
            columns: the column of each row at which it is read.

        Raises:
            InvalidInput: the step reads the stream before the part writes to it, or an attention on
                the way clips its values.
        """
        end = len(self.steps) if until is None else self._number(until[1])
        if end < source.steps:
            raise InvalidInput("The reader reads the stream before the source writes to it.")
        rows = torch.arange(len(columns), device=columns.device)
        whole = alone = source.stream
        heads: dict[Step, tuple[Tensor, ...]] = {}
        for layer, step in self.steps[source.steps : end]:
            added = torch.zeros_like(whole)
            for branch in step.branches:
                f = branch.f
                if isinstance(f, Attention) and not f.is_cross:
                    z, direct = (self._z(layer, branch, f, x) for x in (whole, alone))
                    heads[branch] = tuple(
                        _by_head(each[rows, columns], f.W_O) for each in (z, direct)
                    )
                    out = einsum(z, f.W_O.to(z), "b query h d, h d m -> b query m")
                    added = added + self._normed(branch.norms.output, layer, out)
            whole = self._normed(step.norms.base, layer, whole) + added
            whole = self._normed(step.norms.sum, layer, whole)
            alone = self._normed(step.norms.base, layer, alone)
            alone = self._normed(step.norms.sum, layer, alone)
        read, direct = (self._read(x, until)[rows, columns] for x in (whole, alone))
        return Carried(read, direct, heads)

    def _z(
        self, layer: int, step: Step, f: Attention, x: Stream
    ) -> Float[Tensor, "batch pos head d_head"]:
        """z of the heads of an attention for a stream, without biases."""
        if f.has_clip:
            raise InvalidInput(
                f"Attention of layer {layer} clips its values, so that what its heads carry is not "
                "linear in what they read."
            )
        v = einsum(self._read(x, (layer, step)), f.W_V.to(x), "b key m, h m d -> b key h d")
        pattern = at_least_float32(self.cache[self._place(f.points.pattern, layer)])
        return einsum(pattern, f.each_query(v), "b h query key, b key h d -> b query h d")

    # ---- norms without their biases ------------------------------------------------------------

    def _read(self, x: Stream, until: tuple[int, Step] | None) -> Stream:
        """The stream after the norm before a sub-layer, or after the final norm."""
        if until is None:
            return _linear(self.stack.final_norm, self.cache, self._place(Point.FINAL_SCALE), x)
        layer, step = until
        return self._normed(step.norm, layer, x) if step.input_norm is step.norm.norm else x

    def _normed(self, norm: BlockNorm | None, layer: int, x: Stream) -> Stream:
        if norm is None:
            return x
        return _linear(norm.norm, self.cache, self._place(Point.SCALE, layer, norm.name), x)

    def _embedded(self, x: Stream) -> Stream:
        """A term of the embeddings in the first stream."""
        x = _linear(self.stack.embed_norm, self.cache, self._place(Point.EMBED_SCALE), x)
        project = self.stack.embed_projection
        return project(x) - project(torch.zeros_like(x))

    def _only(self, walk: StreamWalk, vector: Float[Tensor, "batch width"]) -> Tensor:
        """A stream that is zero but for one column of each row."""
        n = self.cache[walk.place(next(iter(self.stack.terms())).point)].shape[1]
        stream = vector.new_zeros(len(vector), n, vector.shape[-1])
        stream[walk.rows, walk.columns] = vector
        return stream

    def _number(self, step: Step) -> int:
        """The number of steps before one; that of an MLP beside attention is its block's."""
        return next(n for n, (_, other) in enumerate(self.steps) if step in other.branches)

    def _place(self, point: Point, layer: int | None = None, norm: str | None = None) -> Place:
        return Place(point, layer, norm, self.stack.name_in_places)


def _linear(norm: Norm, cache: Cache, scale: Place, x: Stream) -> Stream:
    """A norm with its divisor from the run, without its bias."""
    if not isinstance(norm, ScaledNorm):
        return x
    return written_through(norm, x / at_least_float32(cache[scale]))


def _by_head(
    z: Float[Tensor, "batch head d_head"], W_O: Float[Tensor, "head d_head d_model"]
) -> Float[Tensor, "batch head d_model"]:
    """z·W_O of each head."""
    return einsum(z, W_O.to(z), "b h d, h d m -> b h m")


def _output(f: Sublayer, hidden: Tensor, part: int) -> Float[Tensor, "batch d_model"]:
    """What a part writes without the bias of its sub-layer, given its hidden tensor."""
    if isinstance(f, Attention):
        return hidden[:, part] @ f.W_O[part].to(hidden)
    return hidden @ f.W_out.to(hidden) if isinstance(f, MLP) else hidden
