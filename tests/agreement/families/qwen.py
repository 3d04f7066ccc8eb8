"""Qwen2 and Qwen3: biases, norms of queries and keys, windows in some layers."""

from agreement.comparing import Family, Stack
from agreement.disk import as_before
from agreement.families.llama import GROUPED, LAYERS, SHARED
from agreement.small import FULL, SLIDING, YARN, small
from transformers import (
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Model,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3Model,
)

qwen2 = small(Qwen2Config, num_key_value_heads=2)
qwen3 = small(Qwen3Config, **GROUPED)

NORMED = SHARED | {
    "q_normalized": LAYERS.output("self_attn.q_norm"),
    "k_normalized": LAYERS.output("self_attn.k_norm"),
}

FAMILIES = [
    Family(
        name="Qwen2",
        cases={
            "plain": qwen2(Qwen2ForCausalLM),
            "late-windows": qwen2(
                Qwen2ForCausalLM, use_sliding_window=True, sliding_window=4, max_window_layers=1
            ),
            "all-windows": qwen2(
                Qwen2ForCausalLM,
                use_sliding_window=True,
                sliding_window=3,
                max_window_layers=0,
                tie_word_embeddings=True,
                rms_norm_eps=1e-3,
                hidden_act="gelu",
            ),
            "named-windows": qwen2(
                Qwen2ForCausalLM,
                use_sliding_window=True,
                sliding_window=5,
                layer_types=[SLIDING, FULL, SLIDING],
                num_key_value_heads=None,
            ),
            "wide-heads": qwen2(
                Qwen2ForCausalLM,
                head_dim=8,
                num_key_value_heads=4,
                rope_parameters=YARN | {"rope_theta": 50.0},
            ),
        },
        stacks={"decoder": Stack(SHARED)},
        checks={"disk of version 4": as_before},
    ),
    Family(name="Qwen2", cases={"base": qwen2(Qwen2Model)}),
    Family(
        name="Qwen3",
        cases={
            "plain": qwen3(Qwen3ForCausalLM),
            "biased-windows": qwen3(
                Qwen3ForCausalLM,
                attention_bias=True,
                use_sliding_window=True,
                sliding_window=4,
                max_window_layers=2,
                rms_norm_eps=1e-3,
            ),
            "named-windows-tied": qwen3(
                Qwen3ForCausalLM,
                use_sliding_window=True,
                sliding_window=5,
                layer_types=[SLIDING, FULL, SLIDING],
                tie_word_embeddings=True,
                num_key_value_heads=None,
                hidden_act="relu",
            ),
            "wide-heads": qwen3(
                Qwen3ForCausalLM, head_dim=128, rope_parameters=YARN | {"rope_theta": 1e6}
            ),
        },
        stacks={"decoder": Stack(NORMED)},
        checks={"disk of version 4": as_before},
    ),
    Family(name="Qwen3", cases={"base": qwen3(Qwen3Model)}),
]
