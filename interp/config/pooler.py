"""The configuration of pooling by attention."""

from dataclasses import dataclass

from interp.config.parts import AttentionConfig, MLPConfig, NormConfig
from interp.errors import InvalidConfig


@dataclass(frozen=True)
class AttentionPoolerConfig:
    """The pooler y + mlp(norm(y)), where y is attention from one learned query to the last stream.

    Attributes:
        attention: attention from the query to the stream.
        mlp: a single MLP without a gate.
        norm: norm of the MLP's input.
    """

    attention: AttentionConfig
    mlp: MLPConfig
    norm: NormConfig = NormConfig()

    def __post_init__(self) -> None:
        if self.mlp.gated:
            raise InvalidConfig("attention_pooler= needs an MLP with gated=False.")
