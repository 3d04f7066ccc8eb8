"""Qwen2 and Qwen3: biases, norms of queries and keys, windows in some layers."""

from agreement.comparing import Family, Stack
from agreement.disk import from_disk
from agreement.families.llama import SHARED, gave
from transformers import (
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Model,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3Model,
)

SLIDING, FULL = "sliding_attention", "full_attention"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
NORMED = {
    "q_normalized": gave("self_attn.q_norm"),
    "k_normalized": gave("self_attn.k_norm"),
}


def config(kind, **rest):
    told = {
        "vocab_size": 50,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32,
        "attn_implementation": "eager",
    }
    return kind(**(told | rest))


def qwen2(**rest):
    return config(Qwen2Config, **rest)


def qwen3(**rest):
    return config(Qwen3Config, **({"head_dim": 8} | rest))


FAMILIES = [
    Family(
        name="Qwen2",
        cases={
            "plain": lambda: Qwen2ForCausalLM(qwen2()),
            "late-windows": lambda: Qwen2ForCausalLM(
                qwen2(use_sliding_window=True, sliding_window=4, max_window_layers=1)
            ),
            "all-windows": lambda: Qwen2ForCausalLM(
                qwen2(
                    use_sliding_window=True,
                    sliding_window=3,
                    max_window_layers=0,
                    tie_word_embeddings=True,
                    rms_norm_eps=1e-3,
                    hidden_act="gelu",
                )
            ),
            "named-windows": lambda: Qwen2ForCausalLM(
                qwen2(
                    use_sliding_window=True,
                    sliding_window=5,
                    layer_types=[SLIDING, FULL, SLIDING],
                    num_key_value_heads=None,
                )
            ),
            "wide-heads": lambda: Qwen2ForCausalLM(
                qwen2(
                    head_dim=8, num_key_value_heads=4, rope_parameters=YARN | {"rope_theta": 50.0}
                )
            ),
        },
        stacks={"decoder": Stack("model.layers", SHARED)},
        checks={"from disk": from_disk},
    ),
    Family(name="Qwen2", cases={"base": lambda: Qwen2Model(qwen2())}, stacks={}),
    Family(
        name="Qwen3",
        cases={
            "plain": lambda: Qwen3ForCausalLM(qwen3()),
            "biased-windows": lambda: Qwen3ForCausalLM(
                qwen3(
                    attention_bias=True,
                    use_sliding_window=True,
                    sliding_window=4,
                    max_window_layers=2,
                    rms_norm_eps=1e-3,
                )
            ),
            "named-windows-tied": lambda: Qwen3ForCausalLM(
                qwen3(
                    use_sliding_window=True,
                    sliding_window=5,
                    layer_types=[SLIDING, FULL, SLIDING],
                    tie_word_embeddings=True,
                    num_key_value_heads=None,
                    hidden_act="relu",
                )
            ),
            "wide-heads": lambda: Qwen3ForCausalLM(
                qwen3(head_dim=128, rope_parameters=YARN | {"rope_theta": 1e6})
            ),
        },
        stacks={"decoder": Stack("model.layers", SHARED | NORMED)},
        checks={"from disk": from_disk},
    ),
    Family(name="Qwen3", cases={"base": lambda: Qwen3Model(qwen3())}, stacks={}),
]
