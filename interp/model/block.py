"""What is a block? Residual steps: each reads the stream, and adds what it writes.

Where the norm stands is what tells the kinds of step apart:

    PreNorm    x ↦ x + f(norm(x))         (GPT-2 and most since)
    PostNorm   x ↦ norm(x + f(x))         (the original Transformer, BERT)

The places ``resid_mid`` and ``resid_post`` are the *sums*, as in TransformerLens; with post-norm
the stream that goes on is then ``("normalized", layer, "ln1")``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from interp.config import Placement, StackConfig
from interp.model.attention import Attention, CrossAttention
from interp.model.context import Context
from interp.model.mask import AcrossStacks, Mask
from interp.model.mlp import MLP, mlp_of
from interp.model.norm import Norm, norm_of
from interp.model.past import Seen
from interp.model.positions import Unturned, turning_of
from interp.model.recipe import KEPT, Layout, Reader, Recipe, owned
from interp.points import Place, Point
from interp.tap import Tap, untouched

Stream = Float[Tensor, "batch pos d_model"]


@runtime_checkable
class Sublayer(Protocol):
    """What a step wraps: the f of x + f(norm(x)), in two halves: f(x) = outer(inner(x)).

    The tensor between them is what heads or neurons have to say, before it is written.
    """

    def inner(self, x: Stream, context: Context, tap: Tap) -> Tensor:
        """What the heads (z) or the neurons (post) say."""
        ...

    def outer(self, inner: Tensor, tap: Tap) -> Stream:
        """What is written of it."""
        ...

    @property
    def between(self) -> Point:
        """The point of the tensor between the halves."""
        ...

    def layout(self, source: Place) -> Layout:
        """Its places, given where it reads."""
        ...


@dataclass(frozen=True)
class Door:
    """Where in a block a forward can be entered, given the tensors that it would have made there.

    Attributes:
        first: the first place that a forward passes after entering here.
        needs: the places of the tensors to enter with.
        step: which step of the block comes next.
        through: ``through(tensors, tap)``, the stream before that step.
    """

    first: Place
    needs: tuple[Place, ...]
    step: int
    through: Callable[[Sequence[Tensor], Tap], Stream]


@dataclass(frozen=True)
class Step:
    """One residual step of a block: which part of it writes, and where that is tapped.

    Attributes:
        part: name of the sub-layer in its block: ``attn``, ``cross_attn`` or ``mlp``.
        norm: name of the norm beside it: ``ln1``, ``ln2``, ….
        read: the point where the sub-layer reads the stream.
        after: the point of the sum that the step leaves.
    """

    part: str
    norm: str
    read: Point
    after: Point

    def __call__(self, block: "Block", x: Stream, context: Context, tap: Tap) -> Stream:
        """The stream after this step."""
        f, _ = self._parts(block)
        return self.finish(block, x, f.inner(self.read_by(block, x, tap), context, tap), tap)

    def read_by(self, block: "Block", x: Stream, tap: Tap) -> Stream:
        """What the sub-layer is given of the stream before this step."""
        raise NotImplementedError

    def finish(self, block: "Block", x: Stream, inner: Tensor, tap: Tap) -> Stream:
        """The rest of the step, from the stream before it and what heads or neurons said."""
        f, _ = self._parts(block)
        return self.leave(block, x + f.outer(inner, tap), tap)

    def leave(self, block: "Block", total: Stream, tap: Tap) -> Stream:
        """The rest of the step, from the sum."""
        raise NotImplementedError

    def doors(self, block: "Block", index: int, before: Place) -> list[Door]:
        """Where a forward can be entered: before the step, in its middle, after its sum."""
        f, _ = self._parts(block)
        between, after = Place(f.between), Place(self.after)

        def to_step(given: Sequence[Tensor], tap: Tap) -> Stream:  # noqa: ARG001 - taps nothing
            return given[0]

        def to_inner(given: Sequence[Tensor], tap: Tap) -> Stream:
            x, inner = given
            return self.finish(block, x, inner, tap)

        def to_sum(given: Sequence[Tensor], tap: Tap) -> Stream:
            return self.leave(block, given[0], tap)

        return [
            Door(Place(self.read), (before,), index, to_step),
            Door(between, (before, between), index + 1, to_inner),
            Door(after, (after,), index + 1, to_sum),
        ]

    def layout(self, block: "Block", before: Place) -> tuple[Layout, Place]:
        """The step's places, given where the stream before it is; and where the one after is."""
        raise NotImplementedError

    def _parts(self, block: "Block") -> tuple[Sublayer, Norm]:
        return getattr(block, self.part), getattr(block, self.norm)

    def _reading(self, before: Place) -> Layout:
        def read(_: object, of: Reader) -> Tensor:
            return of(before.point, before.norm)

        return {Place(self.read): Recipe(read, (before,))}


@dataclass(frozen=True)
class PreNorm(Step):
    """x ↦ x + f(norm(x))."""

    def read_by(self, block: "Block", x: Stream, tap: Tap) -> Stream:
        """norm(x)."""
        _, norm = self._parts(block)
        return norm(tap(self.read, x), tap.at(norm=self.norm))

    def leave(self, block: "Block", total: Stream, tap: Tap) -> Stream:  # noqa: ARG002
        """The sum, as it is."""
        return tap(self.after, total)

    def layout(self, block: "Block", before: Place) -> tuple[Layout, Place]:
        """Read, norm, sub-layer, sum."""
        f, norm = self._parts(block)
        normed = norm.layout(Place(self.read), self.norm)
        source = list(normed)[-1] if normed else Place(self.read)
        places = {
            **self._reading(before),
            **owned(self.norm, normed),
            **owned(self.part, f.layout(source)),
            Place(self.after): KEPT,
        }
        return places, Place(self.after)


@dataclass(frozen=True)
class PostNorm(Step):
    """x ↦ norm(x + f(x))."""

    def read_by(self, block: "Block", x: Stream, tap: Tap) -> Stream:  # noqa: ARG002
        """x, as it is."""
        return tap(self.read, x)

    def leave(self, block: "Block", total: Stream, tap: Tap) -> Stream:
        """The norm of the sum."""
        _, norm = self._parts(block)
        return norm(tap(self.after, total), tap.at(norm=self.norm))

    def layout(self, block: "Block", before: Place) -> tuple[Layout, Place]:
        """Read, sub-layer, sum, norm."""
        f, norm = self._parts(block)
        normed = norm.layout(Place(self.after), self.norm)
        places = {
            **self._reading(before),
            **owned(self.part, f.layout(Place(self.read))),
            Place(self.after): KEPT,
            **owned(self.norm, normed),
        }
        return places, list(normed)[-1]


STEPS: dict[Placement, type[Step]] = {"pre": PreNorm, "post": PostNorm}

_READ_AND_AFTER = {
    "attn": (Point.ATTN_IN, Point.RESID_MID),
    "cross_attn": (Point.CROSS_ATTN_IN, Point.CROSS_RESID_MID),
    "mlp": (Point.MLP_IN, Point.RESID_POST),
}


class Block(nn.Module):
    """A few residual steps in a row: attention; cross-attention, in a paired decoder; MLP."""

    attn: Attention
    cross_attn: CrossAttention
    mlp: MLP

    def __init__(self, config: StackConfig, d_model: int, mask: Mask, *, paired: bool) -> None:
        super().__init__()
        turning = turning_of(config.positions, config.attention.n_heads)
        self.attn = Attention(config.attention, d_model, mask, turning)
        parts = ["attn"]
        if paired:
            self.cross_attn = CrossAttention(config.attention, d_model, AcrossStacks(), Unturned())
            parts.append("cross_attn")
        if config.mlp is not None:
            self.mlp = mlp_of(config.mlp, d_model)
            parts.append("mlp")
        for index in range(len(parts)):
            self.add_module(f"ln{index + 1}", norm_of(config.norm, d_model))
        self.steps = _steps(parts, STEPS[config.norm.placement])

    def forward(self, x: Stream, context: Context, tap: Tap = untouched) -> Stream:
        """Each step in turn."""
        x = tap(Point.RESID_PRE, x)
        return self.forward_from(0, x, context, tap)

    def forward_from(self, step: int, x: Stream, context: Context, tap: Tap = untouched) -> Stream:
        """The steps from one on, given the stream before it."""
        for later in self.steps[step:]:
            x = later(self, x, context, tap)
        return x

    def enter(
        self, door: Door, given: Sequence[Tensor], context: Context, tap: Tap = untouched
    ) -> Stream:
        """What comes after a door, given the tensors that it needs."""
        return self.forward_from(door.step, door.through(given, tap), context, tap)

    def doors(self) -> list[Door]:
        """Where a forward of this block can be entered, in order."""
        before = Place(Point.RESID_PRE)
        found = [Door(before, (before,), 0, lambda given, tap: tap(Point.RESID_PRE, given[0]))]
        for index, step in enumerate(self.steps):
            found += step.doors(self, index, before)
            before = step.layout(self, before)[1]
        return found

    def at_columns(
        self, x: Stream, columns: slice, context: Context
    ) -> Float[Tensor, "batch column d_model"]:
        """The stream after this block in some columns alone.

        Keys and values are those of all columns; nothing else is computed outside of the chosen.
        """
        read = self.steps[0].read_by(self, x, untouched)
        k, v = self.attn.remember(read, context)
        return self(x[:, columns], context.narrowed(columns, Seen(self.attn, k, v, context.past)))

    def layout(self) -> Layout:
        """Its places in the order of the forward."""
        before = Place(Point.RESID_PRE)
        places: Layout = {before: KEPT}
        for step in self.steps:
            more, before = step.layout(self, before)
            places |= more
        return places

    @property
    def last_mix(self) -> int:
        """The last step in which a column looks at others."""
        return max(n for n, step in enumerate(self.steps) if step.part != "mlp")

    @property
    def end(self) -> Place:
        """Where the stream that this block gives out is found."""
        return self.steps[-1].layout(self, Place(Point.RESID_PRE))[1]


def _steps(parts: list[str], kind: type[Step]) -> tuple[Step, ...]:
    """One step a part; the last leaves ``resid_post``, whatever it is."""
    steps: list[Step] = []
    for index, part in enumerate(parts):
        read, after = _READ_AND_AFTER[part]
        after = Point.RESID_POST if index == len(parts) - 1 else after
        steps.append(kind(part, f"ln{index + 1}", read, after))
    return tuple(steps)
