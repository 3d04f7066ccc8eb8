"""A block: a list of residual steps (attention; cross-attention in a paired decoder; MLP)."""

from collections.abc import Sequence
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor, nn

from interp.config import StackConfig
from interp.model.attention.attention import SELF, Attention, AttentionPoints
from interp.model.attention.cross_attention import CrossAttention
from interp.model.attention.mask import Mask
from interp.model.context import Context
from interp.model.experts import Experts, mlp_of
from interp.model.mlp import MLP
from interp.model.norm import BlockNorm, Norm
from interp.model.norm_kinds import norm_of
from interp.model.positions.scheme import PositionScheme
from interp.model.recipe import STORED, Layout
from interp.model.residual import RestartPoint
from interp.model.residual_kinds import normalizes_output, steps_of
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
        raw = normalizes_output(config)
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

        self.steps = steps_of(config, parts, add_norm)

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
        kv_cache = self.attn.fixed_kv(self.steps[0].read(x, untouched), context)
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
