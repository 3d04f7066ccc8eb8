"""What describes a Transformer: a frozen tree of choices, one dataclass a part.

A :class:`Config` holds one or two stacks. A *decoder* sees earlier positions only, an *encoder*
sees all, and with both the decoder also attends to what the encoder gives out. Every choice here
becomes an object when the model is built; no forward asks a configuration anything.
"""

from interp.config.config import Config, HeadConfig, TokensConfig
from interp.config.parts import (
    NO_NORM,
    Activation,
    AttentionConfig,
    ExpertsConfig,
    Layout,
    MLPConfig,
    NormConfig,
    Placement,
    PositionsConfig,
    ScalingConfig,
    ScalingKind,
)
from interp.config.stack import EmbeddingConfig, LayerConfig, PatchConfig, StackConfig

__all__ = [
    "NO_NORM",
    "Activation",
    "AttentionConfig",
    "Config",
    "EmbeddingConfig",
    "ExpertsConfig",
    "HeadConfig",
    "LayerConfig",
    "Layout",
    "MLPConfig",
    "NormConfig",
    "PatchConfig",
    "Placement",
    "PositionsConfig",
    "ScalingConfig",
    "ScalingKind",
    "StackConfig",
    "TokensConfig",
]
