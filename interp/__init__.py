"""A mechanistic-interpretability toolkit: read, edit and explain every activation.

import interp
from interp import edits

model = interp.load("python-2l")
run = interp.run(model, "def f(x):", record="all", edits=[edits.zero("z", layer=1, head=4)])
run.logits, run.cache["pattern", 0]
"""

from interp import edits, metrics
from interp.cache.cache import Cache
from interp.cache.file import load_cache
from interp.circuits.masked_runs import run_circuits
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
from interp.corpus.prompt_check import check_prompts
from interp.errors import InterpError
from interp.execution.estimate import Estimate, estimate
from interp.execution.prepared import Start
from interp.execution.provenance import versions
from interp.execution.run import Run, run
from interp.graph import computation_graph
from interp.lens.tuned_lens import TunedLens
from interp.linalg import LowRank
from interp.loading import bundled, load, load_towers
from interp.loading.torch_transformer import from_torch
from interp.model.batch import PAD
from interp.points import Place, Point
from interp.sweeps.estimate import estimate_sweep
from interp.sweeps.sweep import Interrupted, Sweep, sweep
from interp.text.prompts import bundled_prompts, iter_prompts, read_prompts
from interp.text.template import Template
from interp.text.template_file import read_template
from interp.text.tokenizer import Tokenizer
from interp.transformer import Transformer
from interp.two_towers import TwoTowers
from interp.verify import verify
from interp.weights.packed import packed, packing_gain
from interp.zoo.access import card, history

__version__ = versions()["interp"]

__all__ = [
    "NO_NORM",
    "PAD",
    "AttentionConfig",
    "AttentionPoolerConfig",
    "Cache",
    "Config",
    "EmbeddingConfig",
    "Estimate",
    "ExpertsConfig",
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
    "StackConfig",
    "Start",
    "Sweep",
    "Template",
    "Tokenizer",
    "TokensConfig",
    "Transformer",
    "TunedLens",
    "TwoTowers",
    "bundled",
    "bundled_prompts",
    "card",
    "check_prompts",
    "computation_graph",
    "edits",
    "estimate",
    "estimate_sweep",
    "from_torch",
    "history",
    "iter_prompts",
    "load",
    "load_cache",
    "load_towers",
    "metrics",
    "packed",
    "packing_gain",
    "read_prompts",
    "read_template",
    "run",
    "run_circuits",
    "sweep",
    "verify",
]
