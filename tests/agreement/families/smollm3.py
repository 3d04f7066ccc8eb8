"""SmolLM3, with and without positions and windows in each layer."""

from agreement.comparing import Family, Stack
from agreement.disk import as_before
from agreement.families.llama import GROUPED, SHARED
from agreement.small import FAR, FULL, SLIDING, YARN, small
from transformers import SmolLM3Config, SmolLM3ForCausalLM, SmolLM3Model

smollm = small(SmolLM3Config, **GROUPED, pad_token_id=0, eos_token_id=2, bos_token_id=1)

FAMILIES = [
    Family(
        name="SmolLM3",
        cases={
            "every-fourth": smollm(SmolLM3ForCausalLM, num_hidden_layers=4),
            "windows-untied": smollm(
                SmolLM3ForCausalLM,
                no_rope_layer_interval=2,
                use_sliding_window=True,
                sliding_window=4,
                tie_word_embeddings=False,
                rms_norm_eps=1e-3,
            ),
            "named-biased": smollm(
                SmolLM3ForCausalLM,
                no_rope_layers=[0, 0, 1],
                layer_types=[FULL, SLIDING, SLIDING],
                use_sliding_window=True,
                sliding_window=3,
                attention_bias=True,
                mlp_bias=True,
                hidden_act="gelu",
                rope_parameters=YARN | FAR,
            ),
            "all-rotary": smollm(
                SmolLM3ForCausalLM,
                no_rope_layers=[1, 1, 1],
                head_dim=6,
                num_key_value_heads=None,
                rope_parameters={"rope_theta": 77.0},
            ),
        },
        stacks={"decoder": Stack(SHARED)},
        checks={"disk of version 4": as_before},
    ),
    Family(name="SmolLM3", cases={"base": smollm(SmolLM3Model)}),
]
