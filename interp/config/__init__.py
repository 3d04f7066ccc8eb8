"""The configuration of a Transformer: frozen dataclasses, one for each part.

A :class:`Config` has one or two stacks. In a *decoder* a query attends to its own and earlier
positions, in an *encoder* to all positions; with both, the decoder also attends to the encoder's
output. The settings are read when the model is built, and never in a forward.
"""

from interp.config.config import Config, HeadConfig, TokensConfig
from interp.config.parts import (
    NO_NORM,
    Activation,
    AttentionConfig,
    ExpertsConfig,
    MLPConfig,
    NormConfig,
    PairLayout,
    Placement,
    PositionsConfig,
    ScalingConfig,
    ScalingKind,
)
from interp.config.pooler import AttentionPoolerConfig
from interp.config.stack import (
    MAX_LAYERS,
    EmbeddingConfig,
    LayerConfig,
    PatchConfig,
    StackConfig,
)

__all__ = [
    "MAX_LAYERS",
    "NO_NORM",
    "Activation",
    "AttentionConfig",
    "AttentionPoolerConfig",
    "Config",
    "EmbeddingConfig",
    "ExpertsConfig",
    "HeadConfig",
    "LayerConfig",
    "MLPConfig",
    "NormConfig",
    "PairLayout",
    "PatchConfig",
    "Placement",
    "PositionsConfig",
    "ScalingConfig",
    "ScalingKind",
    "StackConfig",
    "TokensConfig",
]
