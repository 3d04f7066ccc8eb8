"""The tap of a façade's forward: hook points in the place of the core's points.

The core calls ``tap(point, tensor)``; here a hook point that has hooks is called with the tensor,
and everything else passes through. What TransformerLens computes in another way is done here:

- ``hook_normalized`` is before the gain and the bias of a norm;
- edited scores are not masked again, so that a hook may unmask them;
- with ``use_attn_in`` or ``use_split_qkv_input`` each head reads a stream of its own;
- SoLU's norm, and the bias of a gated MLP, come before ``hook_post``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from einops import einsum
from torch import Tensor

from interp.compat.caching_hooks import SaveHook
from interp.compat.components import MLP, Norm, TransformerBlock
from interp.compat.config import HookedTransformerConfig
from interp.compat.core_config import WRITE_NORM
from interp.compat.hook_point import HookPoint
from interp.model.attention.attention import Attention
from interp.points import Point

Where = tuple[Point, int | None, str | None]
"""Point, layer and norm."""
_NORMALIZED = {
    Point.NORMALIZED: Point.SCALE,
    Point.FINAL_NORMALIZED: Point.FINAL_SCALE,
    Point.EMBED_NORMALIZED: Point.EMBED_SCALE,
    Point.Q_NORMALIZED: Point.Q_SCALE,
    Point.K_NORMALIZED: Point.K_SCALE,
}
"""The outputs of norms, and their divisors."""
_SCALES = frozenset(_NORMALIZED.values())
_OPTIONAL = {Point.RESULT: "use_attn_result", Point.MLP_IN: "use_hook_mlp_in"}
"""Points that TransformerLens has only if a setting says so."""
_QK_NORMS = {Point.Q: Point.Q_NORMALIZED, Point.K: Point.K_NORMALIZED}
_SPLIT = {Point.Q: "q", Point.K: "k", Point.V: "v"}


@dataclass(frozen=True, eq=False)
class Facade:
    """What a tap needs of the model.

    Attributes:
        cfg: its configuration, read in every forward.
        points: the hook point at each place of the core.
        norms: the norm of each output of one.
        blocks: the blocks.
        attentions: the attention of each block in the core.
    """

    cfg: HookedTransformerConfig
    points: Mapping[Where, HookPoint]
    norms: Mapping[Where, Norm]
    blocks: list[TransformerBlock]
    attentions: list[Attention]


@dataclass(eq=False)
class Pending:
    """What one call leaves for later ones.

    Attributes:
        norm_input: what the next norm reads.
        scale: the divisor of the last norm, if it was hooked.
        pattern: the softmax of edited scores.
        pre: what the activation function reads.
        heads: queries, keys and values of split inputs.
        heads_input: what the norms of queries and keys read.
        split: whether the norm in progress was applied to split inputs already.
    """

    norm_input: Tensor | None = None
    scale: Tensor | None = None
    pattern: Tensor | None = None
    pre: Tensor | None = None
    heads: dict[Point, Tensor] = field(default_factory=dict)
    heads_input: dict[Point, Tensor] = field(default_factory=dict)
    split: bool = False


@dataclass(frozen=True, eq=False)
class FacadeTap:
    """The tap of one forward, scoped to one part of the model."""

    facade: Facade
    pending: Pending = field(default_factory=Pending)
    layer: int | None = None
    norm: str | None = None

    def scoped(self, **scope: object) -> "FacadeTap":
        """The same tap for another part of the model."""
        own = {name: value for name, value in scope.items() if name in ("layer", "norm")}
        return replace(self, **own) if own else self  # pyright: ignore[reportArgumentType]

    def must_form(self, *points: Point) -> bool:
        """Whether one of the points has hooks."""
        return any(self._is_hooked(point) for point in points)

    def __call__(self, point: Point, value: Tensor) -> Tensor:
        """The tensor after the hooks of its point."""
        if point in _SCALES:
            if not self.pending.split:
                self.pending.scale = value = self._hooked(point, value)
            return value
        if point in _NORMALIZED:
            value = self._normalized(point, value)
        elif point is Point.SCORES:
            value = self._scores(value)
        elif point is Point.PATTERN:
            value = self._pattern(value)
        else:
            value = self._plain(point, value)
        if point in _QK_NORMS:
            self.pending.heads_input[_QK_NORMS[point]] = value
        self.pending.norm_input = value
        return value

    def _plain(self, point: Point, value: Tensor) -> Tensor:
        if point is Point.EMBED and self.facade.cfg.post_embedding_ln:
            return value
        if point is Point.ATTN_IN:
            self._split_inputs(value)
            return value
        if point in self.pending.heads:
            value = self.pending.heads.pop(point)
        if point is Point.POST and self.layer is not None:
            value = self._neurons(self.facade.blocks[self.layer].mlp, value)
        value = self._hooked(point, value)
        if point is Point.PRE:
            self.pending.pre = value
        return value

    def _neurons(self, mlp: MLP, post: Tensor) -> Tensor:
        """What ``hook_post`` gets: with the bias of a gated MLP, and SoLU's norm with its hooks."""
        pre, self.pending.pre = self.pending.pre, None
        if pre is None or not self.facade.cfg.is_layer_norm_activation():
            return mlp.after_activation(post)
        return mlp.after_activation(mlp.act_fn(pre)) if mlp.norm_has_hooks() else post

    # ---- one point ----------------------------------------------------------------------------

    def _where(self, point: Point) -> Where:
        return point, self.layer if point.in_block else None, self.norm

    def _is_hooked(self, point: Point) -> bool:
        hook_point = self.facade.points.get(self._where(point))
        if hook_point is None or not (hook_point.fwd_hooks or hook_point.bwd_hooks):
            return False
        needs = _OPTIONAL.get(point)
        return needs is None or getattr(self.facade.cfg, needs)

    def _hooked(self, point: Point, value: Tensor) -> Tensor:
        if not self._is_hooked(point):
            return value
        return call_hooks(self.facade.points[self._where(point)], value)

    # ---- norms --------------------------------------------------------------------------------

    def _normalized(self, point: Point, value: Tensor) -> Tensor:
        value = self._after_norm(point, value)
        if point is Point.EMBED_NORMALIZED:  # TransformerLens's embedding is after its norm
            value = call_hooks(self.facade.points[Point.EMBED, None, None], value)
        return value

    def _after_norm(self, point: Point, value: Tensor) -> Tensor:
        scale, self.pending.scale = self.pending.scale, None
        if self.pending.split:
            self.pending.split = False
            return value
        x = self.pending.heads_input.pop(point, self.pending.norm_input)
        if x is None or not self._is_hooked(point):
            return value
        norm = self.facade.norms[self._where(point)]
        core = norm.core
        normalized = core.centred(x) / (core.scale(x) if scale is None else scale)
        return norm.apply_weights(self._hooked(point, normalized))

    # ---- attention ----------------------------------------------------------------------------

    def _scores(self, scores: Tensor) -> Tensor:
        edited = self._hooked(Point.SCORES, scores)
        if edited is not scores:
            pattern = edited.softmax(-1)
            self.pending.pattern = torch.where(pattern.isnan(), 0.0, pattern)
        return edited

    def _pattern(self, pattern: Tensor) -> Tensor:
        own, self.pending.pattern = self.pending.pattern, None
        return self._hooked(Point.PATTERN, pattern if own is None else own)

    def _split_inputs(self, x: Tensor) -> None:
        """Queries, keys and values of each head's own copy of the stream."""
        cfg, layer = self.facade.cfg, self.layer
        if layer is None or not (cfg.use_attn_in or cfg.use_split_qkv_input):
            return
        block, attention = self.facade.blocks[layer], self.facade.attentions[layer]
        inputs = dict.fromkeys(_SPLIT, x[:, :, None].expand(-1, -1, cfg.n_heads, -1))
        if cfg.use_attn_in:
            shared = call_hooks(block.hook_attn_in, inputs[Point.Q])  # pyright: ignore[reportArgumentType]
            inputs = dict.fromkeys(_SPLIT, shared)
        if cfg.use_split_qkv_input:
            for point, letter in _SPLIT.items():
                heads = attention.n_heads if point is Point.Q else attention.kv_heads
                own = x[:, :, None].expand(-1, -1, heads, -1)
                inputs[point] = call_hooks(block.get_submodule(f"hook_{letter}_input"), own)  # pyright: ignore[reportArgumentType]
        is_before = cfg.normalization_type is not None
        is_before = is_before and cfg.original_architecture not in WRITE_NORM
        norm = block.get_submodule("ln1") if is_before else torch.nn.Identity()
        for point, own in inputs.items():
            W, b = attention.projection(point)
            read = norm(own[:, :, :: own.shape[2] // W.shape[0]])
            projected = einsum(
                read, W, "batch pos head d_model, head d_model d -> batch pos head d"
            )
            self.pending.heads[point] = projected + b
        self.pending.split = isinstance(norm, Norm)


def call_hooks(point: HookPoint, value: Tensor) -> Tensor:
    """What the forward goes on with after the hooks of a point.

    Hooks get a copy, which they may change in place, unless all of them only store it. What they
    return is broadcast to the shape of the tensor.
    """
    if not (point.fwd_hooks or point.bwd_hooks):
        return value
    reads_only = all(isinstance(handle.user_hook, SaveHook) for handle in point.fwd_hooks)
    after = point(value if reads_only else value.clone())
    return after if after.shape == value.shape else after.expand_as(value)
