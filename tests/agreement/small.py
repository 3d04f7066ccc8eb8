"""Small models to compare: their sizes, and scalings of rotary positions that many know."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from torch import nn

SIZES = {
    "vocab_size": 50,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
    "attn_implementation": "eager",
}
"""By the names that most configurations have."""

FULL, SLIDING = "full_attention", "sliding_attention"
"""What ``layer_types`` names."""

FAR = {"rope_theta": 500.0}
LINEAR = {"rope_type": "linear", "factor": 4.0}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0}
LONGROPE = {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 6}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


@dataclass(frozen=True, eq=False)
class Case:
    """A model of theirs, which is built when asked for.

    Attributes:
        model: what makes a model of a configuration.
        config: the class of its configuration.
        fields: what that is given.
    """

    model: Callable[[Any], nn.Module]
    config: type
    fields: Mapping[str, object]

    def __call__(self) -> nn.Module:
        return self.of(self.fields)

    def of(self, fields: Mapping[str, object]) -> nn.Module:
        """The same model of another configuration."""
        return self.model(self.config(**deepcopy(dict(fields))))


def small(config: type, sizes: Mapping[str, object] = SIZES, **told: object) -> Callable[..., Case]:
    """What makes the cases of a family, as in ``llama(LlamaForCausalLM, attention_bias=True)``.

    Args:
        config: the class of its configurations.
        sizes: fields of every case.
        told: more of them.

    Returns:
        Given what makes a model of a configuration, and fields of one case, the case.
    """

    def case(model: Callable[[Any], nn.Module], **fields: object) -> Case:
        return Case(model, config, {**sizes, **told, **fields})

    return case
