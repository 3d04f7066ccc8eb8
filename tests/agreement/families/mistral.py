"""Mistral, with windows of several lengths and without one."""

from agreement.comparing import Family, Stack
from agreement.disk import from_disk
from agreement.families.llama import SHARED
from transformers import MistralConfig, MistralForCausalLM, MistralModel


def config(**rest):
    told = {
        "vocab_size": 50,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 32,
        "sliding_window": 4,
        "attn_implementation": "eager",
    }
    return MistralConfig(**(told | rest))


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}

FAMILIES = [
    Family(
        name="Mistral",
        cases={
            "window": lambda: MistralForCausalLM(config()),
            "itself-alone": lambda: MistralForCausalLM(
                config(sliding_window=1, num_key_value_heads=1)
            ),
            "wide-tied": lambda: MistralForCausalLM(
                config(
                    sliding_window=4096,
                    tie_word_embeddings=True,
                    rms_norm_eps=1e-3,
                    hidden_act="gelu_pytorch_tanh",
                )
            ),
            "no-window": lambda: MistralForCausalLM(
                config(
                    sliding_window=None,
                    head_dim=None,
                    num_key_value_heads=4,
                    rope_parameters={"rope_theta": 77.0},
                )
            ),
            "yarn": lambda: MistralForCausalLM(
                config(rope_parameters=YARN | {"rope_theta": 500.0})
            ),
        },
        stacks={"decoder": Stack("model.layers", SHARED)},
        checks={"from disk": from_disk},
    ),
    Family(
        name="Mistral",
        cases={
            "base": lambda: MistralModel(config()),
            "base-tied": lambda: MistralModel(config(tie_word_embeddings=True)),
        },
        stacks={},
    ),
]
