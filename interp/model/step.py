"""How does a block write to the stream? In residual steps: x ↦ x + f(x), with norms somewhere.

Where the norms stand is what tells the kinds of step apart:

    PreNorm      x ↦ x + f(norm(x))              GPT-2 and most since
    PostNorm     x ↦ norm(x + f(x))              the original Transformer, BERT
    Sandwich     x ↦ x + norm′(f(norm(x)))       Gemma 2
    WriteNorm    x ↦ x + norm(f(x))              OLMo 2
    StreamNorm   x ↦ y + f(y), y = norm(x)       BLOOM, if it is told so

(Several sub-layers that write in one step are in :mod:`interp.model.parallel`.) The places
``resid_mid`` and ``resid_post`` are the *sums*, as in TransformerLens; with post-norm the stream
that goes on is then ``("normalized", layer, "ln1")``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from interp.model.context import Context
from interp.model.door import Door, Sublayer
from interp.model.norm import Norm
from interp.model.recipe import KEPT, Layout, Reader, Recipe, owned
from interp.model.tap import Tap
from interp.points import Place, Point

Stream = Float[Tensor, "batch pos d_model"]


@dataclass(frozen=True)
class Step:
    """One residual step of a block: which part of it writes, and where that is tapped.

    Attributes:
        part: name of the sub-layer in its block: ``attn``, ``cross_attn`` or ``mlp``.
        norm: name of the norm beside it: ``ln1``, ``ln2``, ….
        read: the point where the sub-layer reads the stream.
        write: the point of what is added to the stream.
        after: the point of the sum that the step leaves.
    """

    part: str
    norm: str
    read: Point
    write: Point
    after: Point

    def __call__(self, block: nn.Module, x: Stream, context: Context, tap: Tap) -> Stream:
        """The stream after this step."""
        f, _ = self.parts(block)
        given, base = self.take(block, x, tap)
        return self.finish(block, base, f.inner(given, context, tap), tap)

    def take(self, block: nn.Module, x: Stream, tap: Tap) -> tuple[Stream, Stream]:
        """What the sub-layer is given of the stream, and what its writing is added to."""
        raise NotImplementedError

    def finish(self, block: nn.Module, base: Stream, inner: Tensor, tap: Tap) -> Stream:
        """The rest of the step, from what is added to and what heads or neurons said."""
        f, _ = self.parts(block)
        return self.leave(block, base + self.written(block, f.outer(inner, tap), tap), tap)

    def written(self, block: nn.Module, out: Stream, tap: Tap) -> Stream:  # noqa: ARG002
        """What is added, from what the sub-layer gives out: that itself, already tapped."""
        return out

    def leave(self, block: nn.Module, total: Stream, tap: Tap) -> Stream:  # noqa: ARG002
        """The rest of the step, from the sum: that is the stream."""
        return tap(self.after, total)

    def doors(self, block: nn.Module, index: int, before: Place) -> list[Door]:
        """Where a forward can be entered: before the step, in its middle, after its sum."""
        f, _ = self.parts(block)
        base, between, after = self.base(block, before), Place(f.between), Place(self.after)

        def to_step(given: Sequence[Tensor], context: Context, tap: Tap) -> Stream:  # noqa: ARG001
            return given[0]

        def to_inner(given: Sequence[Tensor], context: Context, tap: Tap) -> Stream:  # noqa: ARG001
            return self.finish(block, given[0], given[1], tap)

        def to_sum(given: Sequence[Tensor], context: Context, tap: Tap) -> Stream:  # noqa: ARG001
            return self.leave(block, given[0], tap)

        return [
            Door(Place(self.read), (before,), index, to_step),
            Door(between, (base, between), index + 1, to_inner),
            Door(after, (after,), index + 1, to_sum),
        ]

    def base(self, block: nn.Module, before: Place) -> Place:  # noqa: ARG002
        """Where what is added to is found: the stream before the step."""
        return before

    def source(self, block: nn.Module) -> Place:
        """Where what the sub-layer is given is found."""
        _, norm = self.parts(block)
        return norm.output(Place(self.read), self.norm)

    def layout(self, block: nn.Module, before: Place) -> tuple[Layout, Place]:
        """The step's places, given where the stream before it is; and where the one after is."""
        f, norm = self.parts(block)
        places = {
            **reading(self.read, before),
            **owned(self.norm, norm.layout(Place(self.read), self.norm)),
            **owned(self.part, f.layout(self.source(block))),
            Place(self.after): KEPT,
        }
        return places, Place(self.after)

    @property
    def writes(self) -> tuple[Point, ...]:
        """The points of all that is added to the stream."""
        return (self.write,)

    @property
    def mixes(self) -> bool:
        """Whether a column looks at others."""
        return self.part != "mlp"

    @property
    def adds(self) -> bool:
        """Whether the stream goes through unchanged but for what is added."""
        return True

    def parts(self, block: nn.Module) -> tuple[Sublayer, Norm]:
        """The sub-layer, and the norm before it (or the one there is)."""
        return getattr(block, self.part), getattr(block, self.norm)

    def norms(self) -> Iterator[str]:
        """The names of the norms that the block must have for this step."""
        yield self.norm


@dataclass(frozen=True)
class PreNorm(Step):
    """x ↦ x + f(norm(x))."""

    def take(self, block: nn.Module, x: Stream, tap: Tap) -> tuple[Stream, Stream]:
        """norm(x), and x."""
        _, norm = self.parts(block)
        return norm(tap(self.read, x), tap.at(norm=self.norm)), x


@dataclass(frozen=True)
class StreamNorm(PreNorm):
    """x ↦ y + f(y) with y = norm(x)."""

    def take(self, block: nn.Module, x: Stream, tap: Tap) -> tuple[Stream, Stream]:
        """norm(x), twice."""
        normed, _ = super().take(block, x, tap)
        return normed, normed

    def base(self, block: nn.Module, before: Place) -> Place:  # noqa: ARG002
        """The normed stream."""
        return self.source(block)

    @property
    def adds(self) -> bool:
        """The norm changes it."""
        return False


@dataclass(frozen=True)
class PostNorm(Step):
    """x ↦ norm(x + f(x))."""

    def take(self, block: nn.Module, x: Stream, tap: Tap) -> tuple[Stream, Stream]:  # noqa: ARG002
        """x, twice."""
        return tap(self.read, x), x

    def leave(self, block: nn.Module, total: Stream, tap: Tap) -> Stream:
        """The norm of the sum."""
        _, norm = self.parts(block)
        return norm(tap(self.after, total), tap.at(norm=self.norm))

    def source(self, block: nn.Module) -> Place:  # noqa: ARG002
        """The stream."""
        return Place(self.read)

    def layout(self, block: nn.Module, before: Place) -> tuple[Layout, Place]:
        """Read, sub-layer, sum, norm."""
        f, norm = self.parts(block)
        places = {
            **reading(self.read, before),
            **owned(self.part, f.layout(Place(self.read))),
            Place(self.after): KEPT,
            **owned(self.norm, norm.layout(Place(self.after), self.norm)),
        }
        return places, norm.output(Place(self.after), self.norm)

    @property
    def adds(self) -> bool:
        """The norm changes it."""
        return False


@dataclass(frozen=True)
class WriteNorm(Step):
    """x ↦ x + norm(f(x)): what the sub-layer gives out is at ``raw``, what is added at ``write``.

    Attributes:
        raw: the point of what the sub-layer gives to the norm.
    """

    raw: Point

    def take(self, block: nn.Module, x: Stream, tap: Tap) -> tuple[Stream, Stream]:  # noqa: ARG002
        """x, twice."""
        return tap(self.read, x), x

    def written(self, block: nn.Module, out: Stream, tap: Tap) -> Stream:
        """The norm of what the sub-layer gives out."""
        norm = getattr(block, self.last_norm)
        return tap(self.write, norm(out, tap.at(norm=self.last_norm)))

    @property
    def last_norm(self) -> str:
        """The name of the norm of what is written."""
        return self.norm

    def source(self, block: nn.Module) -> Place:  # noqa: ARG002
        """The stream."""
        return Place(self.read)

    def layout(self, block: nn.Module, before: Place) -> tuple[Layout, Place]:
        """Read, sub-layer, norm, sum."""
        places = {
            **reading(self.read, before),
            **owned(self.part, getattr(block, self.part).layout(self.source(block))),
            **self._writing(block),
            Place(self.after): KEPT,
        }
        return places, Place(self.after)

    def _writing(self, block: nn.Module) -> Layout:
        name, raw = self.last_norm, Place(self.raw)
        norm: Norm = getattr(block, name)
        last = norm.output(raw, name)
        added = Recipe(lambda _, of: of(last.point, last.norm), (last,))
        return {**owned(name, norm.layout(raw, name)), Place(self.write): added}


@dataclass(frozen=True)
class Sandwich(WriteNorm):
    """x ↦ x + norm′(f(norm(x)))."""

    def take(self, block: nn.Module, x: Stream, tap: Tap) -> tuple[Stream, Stream]:
        """norm(x), and x."""
        _, norm = self.parts(block)
        return norm(tap(self.read, x), tap.at(norm=self.norm)), x

    @property
    def last_norm(self) -> str:
        """The name of the norm of what is written."""
        return f"{self.norm}_post"

    def source(self, block: nn.Module) -> Place:
        """The normed stream."""
        return Step.source(self, block)

    def layout(self, block: nn.Module, before: Place) -> tuple[Layout, Place]:
        """Read, norm, sub-layer, norm, sum."""
        _, norm = self.parts(block)
        first = {
            **reading(self.read, before),
            **owned(self.norm, norm.layout(Place(self.read), self.norm)),
        }
        places, after = super().layout(block, before)
        return first | places, after

    def norms(self) -> Iterator[str]:
        """Both."""
        yield from (self.norm, self.last_norm)


def reading(point: Point, before: Place) -> Layout:
    """The place where a sub-layer reads the stream."""

    def read(_: object, of: Reader) -> Tensor:
        return of(before.point, before.norm)

    return {Place(point): Recipe(read, (before,))}
