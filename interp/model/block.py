"""What is a block? Residual steps: each reads the stream, and adds what it writes."""

from collections.abc import Callable, Sequence
from itertools import chain

from jaxtyping import Float
from torch import Tensor, nn

from interp.config import Placement, StackConfig
from interp.model.attention.attention import PLAIN, Attention, AttentionPoints
from interp.model.attention.cross_attention import CrossAttention
from interp.model.attention.mask import Mask
from interp.model.context import Context
from interp.model.door import Door
from interp.model.experts import Experts
from interp.model.kv_cache import Seen
from interp.model.mlp import MLP, GatedMLP
from interp.model.norm import norm_of
from interp.model.parallel import Parallel
from interp.model.positions.positions import Unturned
from interp.model.recipe import KEPT, Layout
from interp.model.step import PostNorm, PreNorm, Sandwich, Step, StreamNorm, WriteNorm
from interp.model.tap import Tap, untouched
from interp.points import Place, Point

Stream = Float[Tensor, "batch pos d_model"]


class Block(nn.Module):
    """A few residual steps in a row: attention; cross-attention, in a paired decoder; MLP."""

    attn: Attention
    cross_attn: CrossAttention
    mlp: MLP | Experts

    def __init__(
        self, config: StackConfig, d_model: int, mask: Mask, positions: Unturned, *, paired: bool
    ) -> None:
        super().__init__()
        raw = config.norm.placement in ("sandwich", "write")
        points = AttentionPoints(out=Point.ATTN_RAW) if raw else PLAIN
        self.attn = Attention(config.attention, d_model, mask, positions, points)
        parts = ["attn"]
        if paired:
            self.cross_attn = CrossAttention(config.attention, d_model)
            parts.append("cross_attn")
        if config.mlp is not None:
            self.mlp = mlp_of(config, d_model, Point.MLP_RAW if raw else Point.MLP_OUT)
            parts.append("mlp")
        self.steps = STEPS[config.norm.placement](parts)
        for name in chain.from_iterable(step.norms() for step in self.steps):
            self.add_module(name, norm_of(config.norm, d_model))
        if config.norm.placement == "parallel_tied":
            self.add_module("ln2", self.get_submodule("ln1"))

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
        return self.forward_from(door.step, door.through(given, context, tap), context, tap)

    def doors(self) -> list[Door]:
        """Where a forward of this block can be entered, in order."""
        before = Place(Point.RESID_PRE)
        found = [Door(before, (before,), 0, lambda given, _, tap: tap(Point.RESID_PRE, given[0]))]
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
        given, _ = self.steps[0].take(self, x, untouched)
        k, v = self.attn.remember(given, context)
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
        return max(n for n, step in enumerate(self.steps) if step.mixes)

    @property
    def end(self) -> Place:
        """Where the stream that this block gives out is found."""
        return self.steps[-1].layout(self, Place(Point.RESID_PRE))[1]


def mlp_of(config: StackConfig, d_model: int, out: Point) -> MLP | Experts:
    """The MLP that ``config`` describes; what it writes is tapped at ``out``."""
    mlp = config.mlp
    if mlp is None:
        raise TypeError("mlp_of: this stack has none.")
    if mlp.experts is not None:
        return Experts(mlp, mlp.experts, d_model, out)
    return GatedMLP(mlp, d_model, out) if mlp.gated else MLP(mlp, d_model, out)


# ---- which steps make a block -------------------------------------------------------------------

_TAPPED = {
    "attn": (Point.ATTN_IN, Point.ATTN_OUT, Point.RESID_MID),
    "cross_attn": (Point.CROSS_ATTN_IN, Point.CROSS_ATTN_OUT, Point.CROSS_RESID_MID),
    "mlp": (Point.MLP_IN, Point.MLP_OUT, Point.RESID_POST),
}
_RAW = {"attn": Point.ATTN_RAW, "mlp": Point.MLP_RAW}
Steps = tuple[Step, ...]


def _in_turn(kind: Callable[..., Step], *, raw: bool = False) -> Callable[[list[str]], Steps]:
    """One step a part; the last leaves ``resid_post``, whatever it is."""

    def make(parts: list[str]) -> Steps:
        steps: list[Step] = []
        for index, part in enumerate(parts):
            read, write, after = _TAPPED[part]
            after = Point.RESID_POST if index == len(parts) - 1 else after
            more = (_RAW[part],) if raw else ()
            steps.append(kind(part, f"ln{index + 1}", read, write, after, *more))
        return tuple(steps)

    return make


def _beside(parts: list[str]) -> Steps:
    """Attention and MLP in one step."""
    attn, mlp = _in_turn(PreNorm)(parts)
    beside = PreNorm(mlp.part, mlp.norm, mlp.read, mlp.write, mlp.after)
    return (Parallel(attn.part, attn.norm, attn.read, attn.write, mlp.after, beside),)


STEPS: dict[Placement, Callable[[list[str]], Steps]] = {
    "pre": _in_turn(PreNorm),
    "post": _in_turn(PostNorm),
    "sandwich": _in_turn(Sandwich, raw=True),
    "write": _in_turn(WriteNorm, raw=True),
    "stream": _in_turn(StreamNorm),
    "parallel": _beside,
    "parallel_tied": _beside,
}
