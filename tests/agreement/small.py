"""Small models to compare: their sizes, and common scalings of rotary positions."""

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
"""Under the names that most configurations use."""

FULL, SLIDING = "full_attention", "sliding_attention"
"""Values in ``layer_types``."""

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
    """A model of ``transformers``, which is built when the case is called.

    Attributes:
        model: builds the model from a configuration.
        config: the class of the configuration.
        fields: the fields of the configuration.
    """

    model: Callable[[Any], nn.Module]
    config: type
    fields: Mapping[str, object]

    def __call__(self) -> nn.Module:
        return self.of(self.fields)

    def of(self, fields: Mapping[str, object]) -> nn.Module:
        """The same kind of model with another configuration."""
        return self.model(self.config(**deepcopy(dict(fields))))


def small(
    config: type, sizes: Mapping[str, object] = SIZES, /, **more: object
) -> Callable[..., Case]:
    """A function that makes cases, as in ``llama(LlamaForCausalLM, attention_bias=True)``.

    Args:
        config: the class of the configurations.
        sizes: fields of every case.
        more: further fields of every case.

    Returns:
        A function of the class that builds a model, and of the fields of one case.
    """

    def case(model: Callable[[Any], nn.Module], **fields: object) -> Case:
        return Case(model, config, {**sizes, **more, **fields})

    return case
