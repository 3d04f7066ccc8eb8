"""The position scheme of an attention, built from its configuration."""

from interp.config import PositionsConfig
from interp.model.positions.alibi import ALiBi, RoundedALiBi
from interp.model.positions.none import NoPositions
from interp.model.positions.relative_bias import (
    BidirectionalBuckets,
    CausalBuckets,
    RelativeBias,
    RelativeBiasTable,
)
from interp.model.positions.rotary import PAIRS, Frequencies, Rotary
from interp.model.positions.scaling import scaled_frequencies


def bias_table_of(config: PositionsConfig, n_heads: int) -> RelativeBiasTable | None:
    """The table of biases that the layers of a stack share; ``None`` without relative bias."""
    return RelativeBiasTable(config.n_buckets, n_heads) if config.kind == "buckets" else None


def attention_positions(
    config: PositionsConfig, n_heads: int, table: RelativeBiasTable | None, *, encoder: bool
) -> NoPositions:
    """The position scheme of one layer's attention.

    Args:
        config: configuration of the positions.
        n_heads: number of query heads.
        table: the stack's table of relative biases, if it has one.
        encoder: whether queries also attend to later keys.
    """
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
        case _:
            return NoPositions()


def rotary_frequencies(config: PositionsConfig) -> Frequencies:
    """Plain frequencies, or frequencies scaled to longer texts."""
    if config.scaling is None:
        return Frequencies(config.base)
    return scaled_frequencies(config.base, config.scaling)
