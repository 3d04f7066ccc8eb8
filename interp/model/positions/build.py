"""The position scheme of an attention, built from its configuration."""

from interp.config import PositionsConfig, StackConfig
from interp.model.positions.alibi import ALiBi, RoundedALiBi
from interp.model.positions.grid_bias import GridBias, GridOffsets
from interp.model.positions.relative_bias import (
    BidirectionalBuckets,
    CausalBuckets,
    LayerBiasTables,
    RelativeBias,
    RelativeBiasTable,
)
from interp.model.positions.rotary import PAIRS, Frequencies, Rotary
from interp.model.positions.scaling import scaled_frequencies
from interp.model.positions.scheme import NoPositions, PositionScheme

BiasTables = RelativeBiasTable | LayerBiasTables


def bias_tables_of(stack: StackConfig) -> BiasTables | None:
    """The learned biases of a stack's scores; ``None`` if it has none."""
    n_heads, patches = stack.attention.n_heads, stack.embedding.patches
    match stack.positions.kind:
        case "buckets":
            return RelativeBiasTable(stack.positions.n_buckets, n_heads)
        case "grid" if patches is not None:
            return RelativeBiasTable(GridOffsets(patches).n, n_heads)
        case "layer_grid" if patches is not None:
            return LayerBiasTables(stack.n_layers, GridOffsets(patches).n, n_heads)
        case _:
            return None


def attention_positions(
    layer: StackConfig, table: RelativeBiasTable | None, *, encoder: bool
) -> PositionScheme:
    """The position scheme of one layer's attention.

    Args:
        layer: configuration of the stack, as of this layer.
        table: the learned biases of this layer, if it has any.
        encoder: whether queries also attend to later keys.
    """
    config, n_heads, patches = layer.positions, layer.attention.n_heads, layer.embedding.patches
    match config.kind:
        case "rotary":
            return Rotary(rotary_frequencies(config), PAIRS[config.layout], config.d_rotary)
        case "alibi":
            kind = RoundedALiBi if config.rounded else ALiBi
            return kind(n_heads, 1.0 if config.bias_scale is None else config.bias_scale)
        case "buckets" if table is not None:
            n, largest = config.n_buckets, config.max_distance
            buckets = (
                BidirectionalBuckets(n // 2, largest) if encoder else CausalBuckets(n, largest)
            )
            return RelativeBias(table, buckets)
        case "grid" | "layer_grid" if table is not None and patches is not None:
            return GridBias(table, GridOffsets(patches))
        case _:
            return NoPositions()


def rotary_frequencies(config: PositionsConfig) -> Frequencies:
    """Plain frequencies, or frequencies scaled to longer texts."""
    if config.scaling is None:
        return Frequencies(config.base)
    return scaled_frequencies(config.base, config.scaling)
