"""Mistral, with windows of several lengths and without one."""

from agreement.comparing import Family, Stack
from agreement.disk import as_before
from agreement.families.llama import GROUPED, SHARED
from agreement.small import FAR, YARN, small
from transformers import MistralConfig, MistralForCausalLM, MistralModel

mistral = small(MistralConfig, **GROUPED, sliding_window=4)

FAMILIES = [
    Family(
        name="Mistral",
        cases={
            "window": mistral(MistralForCausalLM),
            "itself-alone": mistral(MistralForCausalLM, sliding_window=1, num_key_value_heads=1),
            "wide-tied": mistral(
                MistralForCausalLM,
                sliding_window=4096,
                tie_word_embeddings=True,
                rms_norm_eps=1e-3,
                hidden_act="gelu_pytorch_tanh",
            ),
            "no-window": mistral(
                MistralForCausalLM,
                sliding_window=None,
                head_dim=None,
                num_key_value_heads=4,
                rope_parameters={"rope_theta": 77.0},
            ),
            "yarn": mistral(MistralForCausalLM, rope_parameters=YARN | FAR),
        },
        stacks={"decoder": Stack(SHARED)},
        checks={"disk of version 4": as_before},
    ),
    Family(
        name="Mistral",
        cases={
            "base": mistral(MistralModel),
            "base-tied": mistral(MistralModel, tie_word_embeddings=True),
        },
    ),
]
