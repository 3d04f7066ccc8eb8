"""Residual steps, which make up a block: x ↦ x + f(x), with norms in different places.

    Step         x ↦ finish(x + write(f(read(x))))     read, write and finish change nothing
    PreNorm      x ↦ x + f(norm(x))                    GPT-2 and most models since
    PostNorm     x ↦ norm(x + f(x))                    the original Transformer, BERT
    Sandwich     x ↦ x + norm′(f(norm(x)))             Gemma 2; Granite, where norm′ is a factor
    WriteNorm    x ↦ x + norm(f(x))                    OLMo 2
    StreamNorm   x ↦ y + f(y), y = norm(x)             BLOOM, as an option
    Parallel     x ↦ x + attn(ln1(x)) + mlp(ln2(x))    GPT-J, GPT-NeoX

Each kind says which of ``read``, ``write`` and ``finish`` is a norm; all but the first two are in
:mod:`interp.model.residual_kinds`. A sweep restarts forwards inside of a step: from f's hidden
tensor (z of attention, the neurons of an MLP), or from the sum.
``resid_mid`` and ``resid_post`` are the *sums*, as in TransformerLens; with post-norm, later steps
read ``("normalized", layer, "ln1")`` instead.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from interp.model.context import Context
from interp.model.norm import BlockNorm, Norm
from interp.model.recipe import STORED, Layout, Reader, Recipe, owned
from interp.model.shapes import Stream
from interp.model.tap import Tap
from interp.points import Place, Point


@runtime_checkable
class Sublayer(Protocol):
    """Attention or MLP: the f of x + f(norm(x)), where f(x) = output(hidden(x))."""

    mixes_positions: bool

    def __call__(self, x: Stream, context: Context, tap: Tap) -> Stream:
        """f(x)."""
        ...

    def hidden(self, x: Stream, context: Context, tap: Tap) -> Tensor:
        """z of the heads, or the activations of the neurons."""
        ...

    def output(self, hidden: Tensor, tap: Tap) -> Stream:
        """f(x), given its hidden tensor."""
        ...

    @property
    def hidden_point(self) -> Point:
        """The point of the hidden tensor."""
        ...

    def layout(self, source: Place) -> Layout:
        """Its places; ``source`` is the place of its input."""
        ...


State = Sequence[Tensor]
Resume = Callable[[State, Context, Tap], Float[Tensor, "batch pos d_model"]]


@dataclass(frozen=True, eq=False)
class RestartPoint:
    """A state of a block's forward from which the rest of the block can be computed.

    Attributes:
        first: the first place that the continued forward passes.
        state: the places of the tensors to continue with.
        resume: ``resume(tensors, context, tap)``, the stream after the step that the state is in.
        mixes_positions: whether attention is computed from here on.
        next_step: index of the step that follows (set by the block).
    """

    first: Place
    state: tuple[Place, ...]
    resume: Resume
    mixes_positions: bool = False
    next_step: int = 0


@dataclass(frozen=True)
class StepPoints:
    """The points of a residual step.

    Attributes:
        reads: the stream as the sub-layer reads it.
        writes: the term that is added to the stream.
        sum: the stream plus this term.
        raw: output of the sub-layer, if a norm is applied between it and ``writes``.
    """

    reads: Point
    writes: Point
    sum: Point
    raw: Point | None = None


@dataclass(frozen=True, eq=False)
class StepNorms:
    """The norms of a step other than the norm of f's input.

    Attributes:
        base: norm of the stream that f's output is added to.
        output: norm of f's output, before it is added.
        sum: norm of the sum.
    """

    base: BlockNorm | None = None
    output: BlockNorm | None = None
    sum: BlockNorm | None = None


@dataclass(frozen=True, eq=False)
class Step:
    """One residual step.

    Attributes:
        f: attention or MLP.
        part: its name in the block: ``attn``, ``cross_attn`` or ``mlp``.
        norm: the norm of the step.
        points: the points of its tensors.
    """

    f: Sublayer
    part: str
    norm: BlockNorm
    points: StepPoints

    def __call__(self, x: Stream, context: Context, tap: Tap) -> Stream:
        """finish(x + write(f(read(x))))."""
        out = self.f(self.read(x, tap), context, tap)
        return self.finish(x + self.write(out, tap), tap)

    def read(self, x: Stream, tap: Tap) -> Stream:
        """The input of f."""
        return tap(self.points.reads, x)

    def write(self, out: Stream, tap: Tap) -> Stream:  # noqa: ARG002
        """The term that is added to the stream, given f's output."""
        return out

    def finish(self, total: Stream, tap: Tap) -> Stream:
        """The stream after this step, given the sum."""
        return tap(self.points.sum, total)

    def from_stream(self, state: State, context: Context, tap: Tap) -> Stream:
        """The whole step."""
        (x,) = state
        return self(x, context, tap)

    def from_hidden(self, state: State, context: Context, tap: Tap) -> Stream:  # noqa: ARG002
        """The rest of the step, given the stream that the term is added to and f's hidden."""
        x, hidden = state
        return self.finish(x + self.write(self.f.output(hidden, tap), tap), tap)

    def from_sum(self, state: State, context: Context, tap: Tap) -> Stream:  # noqa: ARG002
        """The rest of the step, given the sum."""
        (total,) = state
        return self.finish(total, tap)

    def restart_points(self, before: Place) -> list[RestartPoint]:
        """Restart points before the step, at f's hidden tensor and at the sum.

        Args:
            before: the place of the stream before the step.
        """
        hidden, total = Place(self.f.hidden_point), Place(self.points.sum)
        return [
            RestartPoint(
                Place(self.points.reads), (before,), self.from_stream, self.f.mixes_positions
            ),
            RestartPoint(hidden, (self.base(before), hidden), self.from_hidden),
            RestartPoint(total, (total,), self.from_sum),
        ]

    @property
    def input_norm(self) -> Norm:
        """The norm of f's input."""
        return Norm()

    @property
    def norms(self) -> StepNorms:
        """The norms other than the norm of f's input."""
        return StepNorms()

    @property
    def preserves_stream(self) -> bool:
        """Whether the stream after the step is the stream before it plus the added term."""
        return self.norms.base is None and self.norms.sum is None

    # ---- places -------------------------------------------------------------------------------

    def base(self, before: Place) -> Place:
        """The place of the stream that f's output is added to."""
        return before

    def source(self) -> Place:
        """The place of f's input."""
        return Place(self.points.reads)

    def layout(self, before: Place) -> Layout:
        """Its places in the order of the forward, given the place of the stream before it."""
        return {
            **self.input_layout(before),
            **owned(self.part, self.f.layout(self.source())),
            **self.added_layout(),
            Place(self.points.sum): STORED,
        }

    def added_layout(self) -> Layout:
        """The places between f's output and the added term: none."""
        return {}

    def input_layout(self, before: Place) -> Layout:
        """The places of f's input."""

        def read(_: object, of: Reader) -> Tensor:
            return of(before.point, before.norm)

        return {Place(self.points.reads): Recipe(read, (before,))}

    def end(self) -> Place:
        """The place of the stream after the step."""
        return Place(self.points.sum)

    @property
    def branches(self) -> tuple["Step", ...]:
        """The steps that read the same stream: this one, and any in parallel with it."""
        return (self,)

    @property
    def written(self) -> tuple[Point, ...]:
        """The points of all terms that are added to the stream."""
        return tuple(branch.points.writes for branch in self.branches)


@dataclass(frozen=True, eq=False)
class PreNorm(Step):
    """x ↦ x + f(norm(x))."""

    def read(self, x: Stream, tap: Tap) -> Stream:
        """norm(x)."""
        return self.norm(tap(self.points.reads, x), tap)

    @property
    def input_norm(self) -> Norm:
        """The norm of the step."""
        return self.norm.norm

    def source(self) -> Place:
        """The place of norm(x)."""
        return self.norm.output(Place(self.points.reads))

    def input_layout(self, before: Place) -> Layout:
        """The places of the stream and of its norm."""
        return {**super().input_layout(before), **self.norm.layout(Place(self.points.reads))}
