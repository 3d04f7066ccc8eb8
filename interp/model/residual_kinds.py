"""Residual steps whose norm is not before the sub-layer, or not alone; the steps of a block.

:mod:`interp.model.residual` has a table of all kinds, with their formulas.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from interp.config import NormConfig, Placement, StackConfig
from interp.model.context import Context
from interp.model.norm import BlockNorm, Features, Norm, NormPoints, Scale, ScaledNorm
from interp.model.recipe import STORED, Layout, Recipe, owned
from interp.model.residual import (
    PreNorm,
    RestartPoint,
    State,
    Step,
    StepNorms,
    StepPoints,
    Sublayer,
)
from interp.model.shapes import Stream
from interp.model.tap import Tap
from interp.points import Place, Point


@dataclass(frozen=True, eq=False)
class StreamNorm(PreNorm):
    """x ↦ y + f(y) with y = norm(x)."""

    def __call__(self, x: Stream, context: Context, tap: Tap) -> Stream:
        """y + f(y)."""
        y = self.read(x, tap)
        return self.finish(y + self.f(y, context, tap), tap)

    def base(self, before: Place) -> Place:  # noqa: ARG002
        """The place of y."""
        return self.source()

    @property
    def norms(self) -> StepNorms:
        """The norm gives the stream that f's output is added to."""
        return StepNorms(base=self.norm)


@dataclass(frozen=True, eq=False)
class PostNorm(Step):
    """x ↦ norm(x + f(x))."""

    def finish(self, total: Stream, tap: Tap) -> Stream:
        """The norm of the sum."""
        return self.norm(tap(self.points.sum, total), tap)

    def layout(self, before: Place) -> Layout:
        """The places of the step, with the norm last."""
        return {**super().layout(before), **self.norm.layout(Place(self.points.sum))}

    def end(self) -> Place:
        """The place of the norm's output."""
        return self.norm.output(Place(self.points.sum))

    @property
    def norms(self) -> StepNorms:
        """The norm is applied to the sum."""
        return StepNorms(sum=self.norm)


@dataclass(frozen=True, eq=False)
class WriteNorm(Step):
    """x ↦ x + norm(f(x)): ``points.raw`` is before the norm, ``points.writes`` after it."""

    def write(self, out: Stream, tap: Tap) -> Stream:
        """norm(out)."""
        return tap(self.points.writes, self.norm(out, tap))

    def added_layout(self) -> Layout:
        """The places of the norm, and of its output."""
        return _added_layout(self.norm, self.points)

    @property
    def norms(self) -> StepNorms:
        """The norm is applied to f's output."""
        return StepNorms(output=self.norm)


@dataclass(frozen=True, eq=False)
class Sandwich(PreNorm):
    """x ↦ x + norm′(f(norm(x))).

    Attributes:
        write_norm: norm′.
    """

    write_norm: BlockNorm

    def write(self, out: Stream, tap: Tap) -> Stream:
        """norm′(out)."""
        return tap(self.points.writes, self.write_norm(out, tap))

    def added_layout(self) -> Layout:
        """The places of norm′, and of its output."""
        return _added_layout(self.write_norm, self.points)

    @property
    def norms(self) -> StepNorms:
        """norm′ is applied to f's output."""
        return StepNorms(output=self.write_norm)


@dataclass(frozen=True, eq=False)
class Parallel(PreNorm):
    """x ↦ x + attn(ln1(x)) + mlp(ln2(x)); there is no ``resid_mid``.

    GPT-J (Wang & Komatsuzaki 2021) has one norm for both, GPT-NeoX (Black et al. 2022) has two.
    ``f``, ``norm`` and ``points`` are those of attention.

    Attributes:
        beside: the step of the MLP.
    """

    beside: PreNorm

    def __call__(self, x: Stream, context: Context, tap: Tap) -> Stream:
        """x + (attn(ln1(x)) + mlp(ln2(x)))."""
        attn_out = self.f(self.read(x, tap), context, tap)
        return self.from_attn_out((x, attn_out), context, tap)

    def from_hidden(self, state: State, context: Context, tap: Tap) -> Stream:
        """The rest of the step, given x and z."""
        x, z = state
        return self.from_attn_out((x, self.f.output(z, tap)), context, tap)

    def from_attn_out(self, state: State, context: Context, tap: Tap) -> Stream:
        """The rest of the step, given x and the output of attention."""
        x, attn_out = state
        mlp_out = self.beside.f(self.beside.read(x, tap), context, tap)
        return self.finish(x + (attn_out + mlp_out), tap)

    def from_neurons(self, state: State, context: Context, tap: Tap) -> Stream:  # noqa: ARG002
        """The rest of the step, given x, the output of attention and the MLP's neurons."""
        x, attn_out, neurons = state
        mlp_out = self.beside.f.output(neurons, tap)
        return self.finish(x + (attn_out + mlp_out), tap)

    def restart_points(self, before: Place) -> list[RestartPoint]:
        """Restart points before the step, at z, before the MLP, at its neurons and at the sum."""
        first, at_z, at_sum = super().restart_points(before)
        out, neurons = Place(self.points.writes), Place(self.beside.f.hidden_point)
        reads = Place(self.beside.points.reads)
        return [
            first,
            at_z,
            RestartPoint(reads, (before, out), self.from_attn_out),
            RestartPoint(neurons, (before, out, neurons), self.from_neurons),
            at_sum,
        ]

    def layout(self, before: Place) -> Layout:
        """The places of attention, of the MLP and of the sum."""
        return {
            **self.input_layout(before),
            **owned(self.part, self.f.layout(self.source())),
            **self.beside.input_layout(before),
            **owned(self.beside.part, self.beside.f.layout(self.beside.source())),
            Place(self.points.sum): STORED,
        }

    @property
    def branches(self) -> tuple[Step, ...]:
        """Attention and the MLP."""
        return self, self.beside


def _added_layout(norm: BlockNorm, points: StepPoints) -> Layout:
    """The places of a norm of f's output, and of the term that is added."""
    if points.raw is None:
        raise ValueError(f"{points.writes} has no point before the norm of the output.")
    raw = Place(points.raw)
    last = norm.output(raw)
    added = Recipe(lambda _, of: of(last.point, last.norm), (last,))
    return {**norm.layout(raw), Place(points.writes): added}


class ConstantFactor(ScaledNorm):
    """x ↦ factor · x, as a norm whose divisor, 1 / factor, does not depend on x (Granite, 2024).

    As a norm of a sub-layer's output, it needs no special case in any other part of the model.

    Args:
        factor: the factor.
    """

    def __init__(self, factor: float) -> None:
        super().__init__(NormConfig(gain=False, bias=False), (), NormPoints())
        self.factor = factor

    def centred(self, x: Features) -> Features:
        """x, unchanged."""
        return x

    def fused(self, x: Features) -> Features:
        """factor · x."""
        return x * self.factor

    def scale(self, x: Features) -> Scale:
        """1 / factor."""
        return torch.full_like(x[..., :1], 1 / self.factor)

    def gradients(
        self,
        x: Float[Tensor, "*batch d_model"],
        W: Float[Tensor, "head d d_model"],
        y: Float[Tensor, "*batch head d"],
        by_y: Float[Tensor, "*batch head d"],
    ) -> Float[Tensor, "head *batch d_model"]:
        """factor · g, as the divisor does not depend on x."""
        return Norm.gradients(self, x, W, y, by_y) * self.factor


# ---- the steps of a block, by the placement of its norms -----------------------------------------

Sublayers = Mapping[str, Sublayer]
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


def _sandwich(parts: Sublayers, add_norm: AddNorm, factor: ConstantFactor | None = None) -> Steps:
    """Two norms per step; the second one is ``factor``, if there is one."""
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


_BY_PLACEMENT: dict[Placement, Callable[[Sublayers, AddNorm], Steps]] = {
    "pre": _with_norm(PreNorm),
    "post": _with_norm(PostNorm),
    "sandwich": _sandwich,
    "write": _with_norm(WriteNorm),
    "stream": _with_norm(StreamNorm),
    "parallel": _parallel,
    "parallel_tied": _parallel_tied,
}


def steps_of(config: StackConfig, parts: Sublayers, add_norm: AddNorm) -> Steps:
    """The steps of a block, given its sub-layers by name."""
    if config.residual_scale is None:
        return _BY_PLACEMENT[config.norm.placement](parts, add_norm)
    return _sandwich(parts, add_norm, ConstantFactor(config.residual_scale))


def normalizes_output(config: StackConfig) -> bool:
    """Whether a norm (or a factor) comes between a sub-layer's output and the added term."""
    return config.norm.placement in ("sandwich", "write") or config.residual_scale is not None
