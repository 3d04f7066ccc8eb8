"""The tap of a façade's forward, which calls hook points at the core's points.

The core calls ``tap(point, tensor)``; a hook point that has hooks is called with the tensor, and
everything else passes through. What TransformerLens computes differently is handled here:

- ``hook_normalized`` is before the gain and the bias of a norm;
- edited scores are not masked again, so that a hook may unmask them;
- padding is not embedded, and nothing attends to it (:mod:`.padding`);
- the bias of a gated MLP comes before ``hook_post``.

Models that differ in more are computed by their parts (``ModelForward.runs_core``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from interp.compat.caching_hooks import call_hooks
from interp.compat.components import MLP, Block
from interp.compat.config import HookedTransformerConfig
from interp.compat.core_config import WRITE_NORM
from interp.compat.hook_point import HookPoint
from interp.compat.norms import Norm
from interp.compat.padding import Padding
from interp.model import Attention
from interp.points import Point

Where = tuple[Point, int | None, str | None]
"""Point, layer and norm."""


@dataclass(frozen=True, eq=False)
class Facade:
    """The parts of a model that its tap uses.

    Attributes:
        cfg: its configuration, read in every forward.
        points: the hook point at each place of the core.
        norms: the norm at each place that is the output of one.
        blocks: the blocks.
        attentions: the attention of each block in the core.
    """

    cfg: HookedTransformerConfig
    points: Mapping[Where, HookPoint]
    norms: Mapping[Where, Norm]
    blocks: Sequence[Block]
    attentions: list[Attention]

    @property
    def is_ungrouped(self) -> bool:
        """Whether every query head has its own keys and values."""
        return self.cfg.ungroup_grouped_query_attention

    @property
    def input_norms(self) -> list[Norm]:
        """The norms that TransformerLens applies to queries, keys and values apart."""
        if self.cfg.original_architecture in WRITE_NORM:
            return []
        parts = (block.part("ln1") for block in self.blocks)
        return [part for part in parts if isinstance(part, Norm)]

    @property
    def activation_points(self) -> list[HookPoint]:
        """The hook points of the norms after SoLU."""
        if not self.cfg.is_layer_norm_activation() or self.cfg.attn_only:
            return []
        names = ("mlp.hook_mid", "mlp.ln.hook_scale", "mlp.ln.hook_normalized")
        points = (block.get_submodule(name) for block in self.blocks for name in names)
        return [point for point in points if isinstance(point, HookPoint)]


_NORMALIZED = {
    Point.NORMALIZED: Point.SCALE,
    Point.FINAL_NORMALIZED: Point.FINAL_SCALE,
    Point.EMBED_NORMALIZED: Point.EMBED_SCALE,
    Point.Q_NORMALIZED: Point.Q_SCALE,
    Point.K_NORMALIZED: Point.K_SCALE,
}
"""The outputs of norms, and the divisor of each."""
_SCALES = frozenset(_NORMALIZED.values())
_OPTIONAL = {
    Point.RESULT: "use_attn_result",
    Point.CROSS_RESULT: "use_attn_result",
    Point.CROSS_ATTN_IN: "use_attn_in",
    Point.MLP_IN: "use_hook_mlp_in",
}
"""Points that TransformerLens has only if a setting is on, and that setting."""
_SCORES = (Point.SCORES, Point.CROSS_SCORES)
_PATTERNS = (Point.PATTERN, Point.CROSS_PATTERN)
_QK_NORMS = {Point.Q: Point.Q_NORMALIZED, Point.K: Point.K_NORMALIZED}
_OF_HEADS = (*_QK_NORMS.values(), Point.Q_SCALE, Point.K_SCALE)
"""Points of the norms of queries and keys."""
_SHARED = (Point.K, Point.V)
"""Points of key/value heads, which query heads may share."""


@dataclass(eq=False)
class Pending:
    """The state that one call passes to later ones.

    Attributes:
        norm_input: the input of the next norm.
        scale: the divisor of the last norm, if it was hooked.
        pattern: the softmax of edited scores.
        heads_input: the inputs of the norms of queries and keys.
        keys: the new keys before they are rotated, which a KV cache stores.
    """

    norm_input: Tensor | None = None
    scale: Tensor | None = None
    pattern: Tensor | None = None
    heads_input: dict[Point, Tensor] = field(default_factory=dict)
    keys: Tensor | None = None


@dataclass(frozen=True, eq=False)
class FacadeTap:
    """The tap of one forward, scoped to one part of the model.

    Attributes:
        facade: the parts of the model.
        pending: the state that one call passes to later ones.
        layer: the layer of the part.
        norm: the norm that is applied.
        has_kv_cache: whether rotated keys are hooked later, with those of the cache.
        padding: where there is padding; ``None`` if there is none.
    """

    facade: Facade
    pending: Pending = field(default_factory=Pending)
    layer: int | None = None
    norm: str | None = None
    has_kv_cache: bool = False
    padding: Padding | None = None

    def scoped(self, **scope: object) -> "FacadeTap":
        """The same tap for another part of the model."""
        changes = {name: value for name, value in scope.items() if name in ("layer", "norm")}
        return replace(self, **changes) if changes else self  # pyright: ignore[reportArgumentType]

    def must_form(self, *points: Point) -> bool:
        """Whether one of the points has hooks, or differs from the core's at padding."""
        if self.padding is not None and Point.SCORES in points:
            return True
        return any(self._is_hooked(point) for point in points)

    def __call__(self, point: Point, value: Tensor) -> Tensor:
        """The tensor after the hooks of its point."""
        if point in _SCALES:
            self.pending.scale = value = self._hooked(point, value)
            return value
        if point in _NORMALIZED:
            value = self._normalized(point, value)
        elif point in _SCORES:
            value = self._scores(point, value)
        elif point in _PATTERNS:
            value = self._pattern(point, value)
        else:
            value = self._other(point, value)
        if point in _QK_NORMS:
            self.pending.heads_input[_QK_NORMS[point]] = value
        if point in (Point.K, Point.K_NORMALIZED):
            self.pending.keys = value
        self.pending.norm_input = value
        return value

    def _other(self, point: Point, value: Tensor) -> Tensor:
        if point is Point.EMBED and self.facade.cfg.post_embedding_ln:
            return value
        if point is Point.ROT_K and self.has_kv_cache:
            return value
        if point is Point.ATTN_IN:
            return value
        return self._hooked(point, self._before_hooks(point, value))

    def _before_hooks(self, point: Point, value: Tensor) -> Tensor:
        """The value that TransformerLens passes to the hooks of a point."""
        if point is Point.POS_EMBED and self.padding is not None:
            return value.masked_fill(self.padding.queries[..., None], 0.0)
        if self.layer is None:
            return value
        if point in _SHARED and self.facade.is_ungrouped:
            return self.facade.attentions[self.layer].each_query(value)
        if point is Point.POST and self.facade.cfg.gated_mlp:
            mlp = self.facade.blocks[self.layer].part("mlp")
            return mlp.after_activation(value) if isinstance(mlp, MLP) else value
        return value

    # ---- one point ----------------------------------------------------------------------------

    def _where(self, point: Point) -> Where:
        return point, self.layer if point.in_block else None, self.norm

    def _is_hooked(self, point: Point) -> bool:
        hook_point = self.facade.points.get(self._where(point))
        if hook_point is None or not hook_point.is_hooked:
            return False
        needs = _OPTIONAL.get(point)
        return needs is None or getattr(self.facade.cfg, needs)

    def _hooked(self, point: Point, value: Tensor) -> Tensor:
        if not self._is_hooked(point):
            return value
        hook_point = self.facade.points[self._where(point)]
        if point not in _OF_HEADS:
            return call_hooks(hook_point, value)
        # One row for each head, or one axis of all heads, as TransformerLens calls these norms.
        flat = value.flatten(0, 2) if self.facade.cfg.use_qk_norm else value.flatten(2)
        return call_hooks(hook_point, flat).view(value.shape)

    # ---- norms --------------------------------------------------------------------------------

    def _normalized(self, point: Point, value: Tensor) -> Tensor:
        value = self._after_norm(point, value)
        if point is Point.EMBED_NORMALIZED and self.facade.cfg.post_embedding_ln:
            # TransformerLens's hook_embed is after the norm of the embedding.
            value = call_hooks(self.facade.points[Point.EMBED, None, None], value)
        return value

    def _after_norm(self, point: Point, value: Tensor) -> Tensor:
        scale, self.pending.scale = self.pending.scale, None
        x = self.pending.heads_input.pop(point, self.pending.norm_input)
        if x is None or not self._is_hooked(point):
            return value
        norm = self.facade.norms[self._where(point)]
        core = norm.core
        normalized = core.centred(x) / (core.scale(x) if scale is None else scale)
        return norm.apply_weights(self._hooked(point, normalized))

    # ---- attention ----------------------------------------------------------------------------

    def _scores(self, point: Point, scores: Tensor) -> Tensor:
        masked = scores
        if self.padding is not None:
            masked = scores.masked_fill(self.padding.itself, -torch.inf)
        edited = self._hooked(point, masked)
        if edited is not scores:
            pattern = edited.softmax(-1)
            self.pending.pattern = torch.where(pattern.isnan(), 0.0, pattern)
        return edited

    def _pattern(self, point: Point, pattern: Tensor) -> Tensor:
        recomputed, self.pending.pattern = self.pending.pattern, None
        return self._hooked(point, pattern if recomputed is None else recomputed)
