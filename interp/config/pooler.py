"""The configuration of pooling by attention."""

from dataclasses import dataclass

from interp.config.parts import AttentionConfig, MLPConfig, NormConfig
from interp.errors import InvalidConfig


@dataclass(frozen=True)
class AttentionPoolerConfig:
    """The pooler y + mlp(norm(y)), where y is what one learned query attends to in the last stream.

    Attributes:
        attention: of the query.
        mlp: a single MLP without a gate.
        norm: what the MLP reads.
    """

    attention: AttentionConfig
    mlp: MLPConfig
    norm: NormConfig = NormConfig()

    def __post_init__(self) -> None:
        if self.mlp.gated:
            raise InvalidConfig("attention_pooler= needs an MLP with gated=False.")
