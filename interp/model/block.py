"""What is a block? Residual steps: each reads the stream, and adds what it writes.

Where the norm stands is what tells the kinds of step apart:

    PreNorm    x ↦ x + f(norm(x))         (GPT-2 and most since)
    PostNorm   x ↦ norm(x + f(x))         (the original Transformer, BERT)

The places ``resid_mid`` and ``resid_post`` are the *sums*, as in TransformerLens; with post-norm
the stream that goes on is then ``("normalized", layer, "ln1")``.
"""

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
from interp.model.positions import Unturned, turning_of
from interp.model.recipe import KEPT, Layout, Reader, Recipe, owned
from interp.points import Place, Point
from interp.tap import Tap, untouched

Stream = Float[Tensor, "batch pos d_model"]


@runtime_checkable
class Sublayer(Protocol):
    """What a step wraps: the f of x + f(norm(x))."""

    def __call__(self, x: Stream, context: Context, tap: Tap) -> Stream:
        """What is written."""
        ...

    def layout(self, source: Place) -> Layout:
        """Its places, given where it reads."""
        ...


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
        raise NotImplementedError

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

    def __call__(self, block: "Block", x: Stream, context: Context, tap: Tap) -> Stream:
        """X + f(norm(x))."""
        f, norm = self._parts(block)
        read = norm(tap(self.read, x), tap.at(norm=self.norm))
        return tap(self.after, x + f(read, context, tap))

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

    def __call__(self, block: "Block", x: Stream, context: Context, tap: Tap) -> Stream:
        """norm(x + f(x))."""
        f, norm = self._parts(block)
        after = tap(self.after, x + f(tap(self.read, x), context, tap))
        return norm(after, tap.at(norm=self.norm))

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
        for step in self.steps:
            x = step(self, x, context, tap)
        return x

    def layout(self) -> Layout:
        """Its places in the order of the forward."""
        before = Place(Point.RESID_PRE)
        places: Layout = {before: KEPT}
        for step in self.steps:
            more, before = step.layout(self, before)
            places |= more
        return places

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
