"""The parts of a façade that its tap uses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interp.compat.components import Block
from interp.compat.config import HookedTransformerConfig
from interp.compat.core_config import WRITE_NORM
from interp.compat.hook_point import HookPoint
from interp.compat.norms import Norm
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
    def is_bidirectional(self) -> bool:
        """Whether nothing is masked, not even padding."""
        return self.cfg.attention_dir == "bidirectional"

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
