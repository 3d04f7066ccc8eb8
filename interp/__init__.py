"""A mechanistic-interpretability toolkit: read, edit and explain every activation.

import interp
from interp import edits

model = interp.load("python-2l")
run = interp.run(model, "def f(x):", record="all", edits=[edits.zero("z", layer=1, head=4)])
run.logits, run.cache["pattern", 0]
"""

from interp import edits, executors, metrics
from interp.cache import Cache
from interp.config import (
    NO_NORM,
    AttentionConfig,
    AttentionPoolerConfig,
    Config,
    EmbeddingConfig,
    ExpertsConfig,
    HeadConfig,
    LayerConfig,
    MLPConfig,
    NormConfig,
    PatchConfig,
    PositionsConfig,
    ScalingConfig,
    StackConfig,
    TokensConfig,
)
from interp.dictionaries import DictionaryTransformer, with_dictionaries
from interp.errors import InterpError
from interp.estimates import Estimate, estimate, estimate_sweep
from interp.execution import Run, Start, run, versions
from interp.executors import use
from interp.graph import computation_graph
from interp.harvests import Harvest, HarvestEstimate, estimate_harvest, harvest
from interp.kernels import packed, packing_gain
from interp.linalg import LowRank
from interp.loading import TwoTowers, bundled, from_torch, load, load_towers
from interp.model import PAD
from interp.points import Place, Point
from interp.prompts import Template, bundled_prompts, iter_prompts, read_prompts, read_template
from interp.saved import load_cache
from interp.sweeps import Interrupted, Sweep, sweep
from interp.tensor_parallel import ShardedTransformer, parallel
from interp.text import Tokenizer
from interp.transformer import Transformer
from interp.zoo import card, history

__version__ = versions()["interp"]

__all__ = [
    "NO_NORM",
    "PAD",
    "AttentionConfig",
    "AttentionPoolerConfig",
    "Cache",
    "Config",
    "DictionaryTransformer",
    "EmbeddingConfig",
    "Estimate",
    "ExpertsConfig",
    "Harvest",
    "HarvestEstimate",
    "HeadConfig",
    "InterpError",
    "Interrupted",
    "LayerConfig",
    "LowRank",
    "MLPConfig",
    "NormConfig",
    "PatchConfig",
    "Place",
    "Point",
    "PositionsConfig",
    "Run",
    "ScalingConfig",
    "ShardedTransformer",
    "StackConfig",
    "Start",
    "Sweep",
    "Template",
    "Tokenizer",
    "TokensConfig",
    "Transformer",
    "TwoTowers",
    "bundled",
    "bundled_prompts",
    "card",
    "computation_graph",
    "edits",
    "estimate",
    "estimate_harvest",
    "estimate_sweep",
    "executors",
    "from_torch",
    "harvest",
    "history",
    "iter_prompts",
    "load",
    "load_cache",
    "load_towers",
    "metrics",
    "packed",
    "packing_gain",
    "parallel",
    "read_prompts",
    "read_template",
    "run",
    "sweep",
    "use",
    "with_dictionaries",
]
