"""Cohere, with norms of heads and without; Cohere 2, with windows in some layers."""

from agreement.comparing import Family, Stack
from agreement.disk import as_before, published
from agreement.families.llama import LAYERS, SHARED
from agreement.small import FAR, FULL, LINEAR, SLIDING, YARN, small
from transformers import (
    Cohere2Config,
    Cohere2ForCausalLM,
    Cohere2Model,
    CohereConfig,
    CohereForCausalLM,
    CohereModel,
)

IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
cohere = small(CohereConfig, **IDS, num_key_value_heads=2)
cohere2 = small(Cohere2Config, **IDS, num_key_value_heads=2, sliding_window=4)

ONE_NORM = {name: read for name, read in SHARED.items() if name != "resid_mid"}
ONE_NORM |= {"normalized ln2": LAYERS.output("input_layernorm")}
NORMED = ONE_NORM | {
    "q_normalized": LAYERS.output("self_attn.q_norm"),
    "k_normalized": LAYERS.output("self_attn.k_norm"),
}

# As of Command R7B.
PUBLISHED = {
    "architectures": ["Cohere2ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "cache_implementation": "hybrid",
    "eos_token_id": 2,
    "head_dim": 6,
    "hidden_act": "silu",
    "hidden_size": 24,
    "initializer_range": 0.02,
    "intermediate_size": 40,
    "layer_norm_eps": 1e-05,
    "layer_switch": 4,
    "logit_scale": 0.25,
    "max_position_embeddings": 32,
    "model_type": "cohere2",
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "order_of_interleaved_layers": "local_attn_first",
    "pad_token_id": 0,
    "position_embedding_type": "rope_gptj",
    "rope_scaling": None,
    "rope_theta": 50000,
    "rotary_pct": 1.0,
    "sliding_window": 4,
    "sliding_window_pattern": 4,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_embedding_sharing": True,
    "use_gated_activation": True,
    "use_parallel_block": True,
    "use_parallel_embedding": True,
    "vocab_size": 50,
}

FAMILIES = [
    Family(
        name="Cohere",
        cases={
            "plain": cohere(CohereForCausalLM),
            "untied-biased": cohere(
                CohereForCausalLM,
                tie_word_embeddings=False,
                attention_bias=True,
                num_key_value_heads=None,
                layer_norm_eps=1e-3,
                logit_scale=2.0,
                hidden_act="gelu",
                rope_parameters=LINEAR | FAR,
            ),
        },
        stacks={"decoder": Stack(ONE_NORM)},
        checks={"disk of version 4": as_before},
    ),
    Family(
        name="Cohere",
        cases={"normed": cohere(CohereForCausalLM, use_qk_norm=True, layer_norm_eps=1e-2)},
        stacks={"decoder": Stack(NORMED)},
        checks={"disk of version 4": as_before},
    ),
    Family(name="Cohere", cases={"base": cohere(CohereModel)}),
    Family(
        name="Cohere 2",
        cases={
            "one-of-two": cohere2(Cohere2ForCausalLM, sliding_window_pattern=2),
            "all-windows-untied": cohere2(
                Cohere2ForCausalLM,
                tie_word_embeddings=False,
                attention_bias=True,
                layer_norm_eps=1e-3,
                logit_scale=1.0,
                rope_parameters=YARN | FAR,
            ),
            "named": cohere2(
                Cohere2ForCausalLM, layer_types=[FULL, SLIDING, FULL], hidden_act="relu"
            ),
        },
        stacks={"decoder": Stack(ONE_NORM)},
        checks={"disk of version 4": as_before},
    ),
    Family(
        name="Cohere 2",
        cases={
            "published": cohere2(
                Cohere2ForCausalLM,
                num_hidden_layers=4,
                logit_scale=0.25,
                rope_parameters={"rope_theta": 50000.0},
            )
        },
        checks={"published": published(PUBLISHED)},
    ),
    Family(name="Cohere 2", cases={"base": cohere2(Cohere2Model)}),
]
