"""A block: a list of residual steps (attention; cross-attention in a paired decoder; MLP)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from interp.config import Placement, StackConfig
from interp.model.attention.attention import SELF, Attention, AttentionPoints
from interp.model.attention.cross_attention import CrossAttention
from interp.model.attention.mask import Mask
from interp.model.context import Context
from interp.model.experts import Experts, SharedExperts
from interp.model.kv_cache import FixedKV
from interp.model.mlp import MLP, GatedMLP
from interp.model.norm import BlockNorm, ConstantFactor, Norm, norm_of
from interp.model.positions.scheme import PositionScheme
from interp.model.recipe import STORED, Layout
from interp.model.residual import (
    Parallel,
    PostNorm,
    PreNorm,
    RestartPoint,
    Sandwich,
    Step,
    StepPoints,
    StreamNorm,
    Sublayer,
    WriteNorm,
)
from interp.model.shapes import Stream
from interp.model.tap import Tap, untouched
from interp.points import Place, Point


class Block(nn.Module):
    """x ↦ step_n(… step_1(x))."""

    attn: Attention
    cross_attn: CrossAttention
    mlp: MLP | Experts

    def __init__(
        self,
        config: StackConfig,
        d_model: int,
        mask: Mask,
        positions: PositionScheme,
        *,
        paired: bool,
    ) -> None:
        super().__init__()
        raw = config.norm.placement in ("sandwich", "write") or config.residual_scale is not None
        points = AttentionPoints(out=Point.ATTN_RAW) if raw else SELF
        parts: dict[str, Attention | MLP | Experts] = {
            "attn": Attention(config.attention, d_model, mask, positions, points)
        }
        if paired:
            parts["cross_attn"] = CrossAttention(config.attention, d_model)
        if config.mlp is not None:
            parts["mlp"] = mlp_of(config, d_model, Point.MLP_RAW if raw else Point.MLP_OUT)
        for name, part in parts.items():
            self.add_module(name, part)

        def add_norm(name: str, shared: Norm | None = None) -> BlockNorm:
            reads_stream = name == "ln1" and not config.attention.normed
            norm = Norm() if reads_stream else shared or norm_of(config.norm, d_model)
            self.add_module(name, norm)
            return BlockNorm(norm, name)

        if config.residual_scale is None:
            self.steps = STEPS[config.norm.placement](parts, add_norm)
        else:
            self.steps = _pre_norm_scaled(parts, add_norm, ConstantFactor(config.residual_scale))

    def forward(self, x: Stream, context: Context, tap: Tap = untouched) -> Stream:
        """Run each step in turn."""
        x = tap(Point.RESID_PRE, x)
        for step in self.steps:
            x = step(x, context, tap)
        return x

    def resume(
        self,
        restart: RestartPoint,
        state: Sequence[Tensor],
        context: Context,
        tap: Tap = untouched,
    ) -> Stream:
        """The stream after this block, continued from an intermediate state."""
        x = restart.resume(state, context, tap)
        for step in self.steps[restart.next_step :]:
            x = step(x, context, tap)
        return x

    def restart_points(self) -> list[RestartPoint]:
        """Every state from which the block can be continued, in the order of the forward."""
        before = Place(Point.RESID_PRE)
        points = [RestartPoint(before, (before,), _from_start, mixes_positions=True)]
        for index, step in enumerate(self.steps):
            later = any(step.f.mixes_positions for step in self.steps[index + 1 :])
            points += [
                replace(p, next_step=index + 1, mixes_positions=p.mixes_positions or later)
                for p in step.restart_points(before)
            ]
            before = step.end()
        return points

    def at_columns(
        self, x: Stream, columns: slice, context: Context
    ) -> Float[Tensor, "batch column d_model"]:
        """The stream after this block at some columns only.

        Keys and values are computed for all columns, everything else for ``columns`` only.
        """
        k, v = self.attn.compute_kv(self.steps[0].read(x, untouched), context)
        kv_cache = FixedKV(self.attn, k, v, context.kv_cache)
        return self(x[:, columns], context.narrowed(columns, kv_cache))

    def layout(self) -> Layout:
        """Its places in the order of the forward."""
        before = Place(Point.RESID_PRE)
        places: Layout = {before: STORED}
        for step in self.steps:
            places |= step.layout(before)
            before = step.end()
        return places

    @property
    def end(self) -> Place:
        """The place of the stream after this block."""
        return self.steps[-1].end()


def _from_start(state: Sequence[Tensor], context: Context, tap: Tap) -> Stream:  # noqa: ARG001
    """The stream before the first step."""
    return tap(Point.RESID_PRE, state[0])


def mlp_of(config: StackConfig, d_model: int, out: Point) -> MLP | Experts:
    """The MLP of a configuration, whose output is at the point ``out``."""
    mlp = config.mlp
    if mlp is None:
        raise TypeError("mlp_of: this stack has no MLP.")
    if mlp.experts is not None:
        kind = Experts if mlp.experts.d_shared is None else SharedExperts
        return kind(mlp, mlp.experts, d_model, out)
    return GatedMLP(mlp, d_model, out) if mlp.gated else MLP(mlp, d_model, out)


# ---- the steps of a block, by the placement of its norms -----------------------------------------

Sublayers = dict[str, Attention | MLP | Experts]
Steps = tuple[Step, ...]


@runtime_checkable
class AddNorm(Protocol):
    """Registers a norm with the block: a new one, or one that is shared with another name."""

    def __call__(self, name: str, shared: Norm | None = None) -> BlockNorm:
        """The norm and its name."""
        ...


_POINTS = {
    "attn": StepPoints(Point.ATTN_IN, Point.ATTN_OUT, Point.RESID_MID, Point.ATTN_RAW),
    "cross_attn": StepPoints(Point.CROSS_ATTN_IN, Point.CROSS_ATTN_OUT, Point.CROSS_RESID_MID),
    "mlp": StepPoints(Point.MLP_IN, Point.MLP_OUT, Point.RESID_POST, Point.MLP_RAW),
}


def _step_parts(parts: Sublayers) -> list[tuple[str, Sublayer, StepPoints, str]]:
    """Name, sub-layer, points and norm name of each step; the sum of the last is ``resid_post``."""
    points = [_POINTS[name] for name in parts]
    points[-1] = replace(points[-1], sum=Point.RESID_POST)
    norms = [f"ln{n}" for n in range(1, len(parts) + 1)]
    return list(zip(parts, parts.values(), points, norms, strict=True))


def _with_norm(
    kind: type[PreNorm] | type[PostNorm] | type[WriteNorm],
) -> Callable[[Sublayers, AddNorm], Steps]:
    """Steps of one kind, with one norm each."""

    def build(parts: Sublayers, add_norm: AddNorm) -> Steps:
        return tuple(kind(f, name, add_norm(ln), at) for name, f, at, ln in _step_parts(parts))

    return build


def _sandwich(parts: Sublayers, add_norm: AddNorm) -> Steps:
    """Two norms per step."""
    return tuple(
        Sandwich(f, name, add_norm(ln), at, add_norm(f"{ln}_post"))
        for name, f, at, ln in _step_parts(parts)
    )


def _pre_norm_scaled(parts: Sublayers, add_norm: AddNorm, factor: ConstantFactor) -> Steps:
    """A norm of the stream, and a constant factor on each sub-layer's output."""
    return tuple(
        Sandwich(f, name, add_norm(ln), at, add_norm(f"{ln}_post", factor))
        for name, f, at, ln in _step_parts(parts)
    )


def _parallel(parts: Sublayers, add_norm: AddNorm) -> Steps:
    """Attention and MLP in one step, with a norm each."""
    return _parallel_steps(parts, add_norm("ln1"), add_norm("ln2"))


def _parallel_tied(parts: Sublayers, add_norm: AddNorm) -> Steps:
    """Attention and MLP in one step, with one norm that has two names."""
    first = add_norm("ln1")
    return _parallel_steps(parts, first, add_norm("ln2", first.norm))


def _parallel_steps(parts: Sublayers, ln1: BlockNorm, ln2: BlockNorm) -> Steps:
    (attn_name, attn, at, _), (mlp_name, mlp, beside, _) = _step_parts(parts)
    mlp_step = PreNorm(mlp, mlp_name, ln2, beside)
    return (Parallel(attn, attn_name, ln1, replace(at, sum=beside.sum), mlp_step),)


STEPS: dict[Placement, Callable[[Sublayers, AddNorm], Steps]] = {
    "pre": _with_norm(PreNorm),
    "post": _with_norm(PostNorm),
    "sandwich": _sandwich,
    "write": _with_norm(WriteNorm),
    "stream": _with_norm(StreamNorm),
    "parallel": _parallel,
    "parallel_tied": _parallel_tied,
}
