"""Models whose weights are divided among processes: tensor parallelism."""

from interp.tensor_parallel.ranks import Ranks
from interp.tensor_parallel.sharded import (
    ShardedTransformer,
    block_bytes,
    parallel,
    rank_bytes,
)

__all__ = ["Ranks", "ShardedTransformer", "block_bytes", "parallel", "rank_bytes"]
