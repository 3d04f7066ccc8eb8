"""Phi-1 and 2, with grouped heads, norms of queries and keys, every share and scaling."""

from agreement.comparing import Family, Stack, heads_behind
from agreement.disk import published
from agreement.families.llama import LAYERS, SHARED
from agreement.small import DYNAMIC, FAR, LINEAR, LLAMA3, LONGROPE, YARN, small
from transformers import PhiConfig, PhiForCausalLM, PhiModel

NAME = "Phi-1, Phi-2"

phi = small(PhiConfig, hidden_size=32)

ONE_NORM = {
    **LAYERS.through("input_layernorm", "resid_pre", "normalized ln1"),
    "normalized ln2": LAYERS.output("input_layernorm"),
    "q": SHARED["q"],
    "k": SHARED["k"],
    "v": SHARED["v"],
    **LAYERS.through("self_attn.dense", "z", "attn_out"),
    "pre": LAYERS.output("mlp.fc1"),
    **LAYERS.through("mlp.fc2", "post", "mlp_out"),
    "resid_post": LAYERS.output(),
}
NORMED = ONE_NORM | {
    "q_normalized": LAYERS.output("self_attn.q_layernorm", heads_behind),
    "k_normalized": LAYERS.output("self_attn.k_layernorm", heads_behind),
}

# As of Phi-2.
PUBLISHED = {
    "architectures": ["PhiForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "embd_pdrop": 0.0,
    "eos_token_id": 2,
    "hidden_act": "gelu_new",
    "hidden_size": 32,
    "initializer_range": 0.02,
    "intermediate_size": 40,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 32,
    "model_type": "phi",
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": None,
    "partial_rotary_factor": 0.25,
    "qk_layernorm": False,
    "resid_pdrop": 0.1,
    "rope_scaling": None,
    "rope_theta": 500.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "use_cache": True,
    "vocab_size": 50,
}

FAMILIES = [
    Family(
        name=NAME,
        cases={
            "plain": phi(PhiForCausalLM),
            "tied-all-turns": phi(
                PhiForCausalLM,
                tie_word_embeddings=True,
                partial_rotary_factor=1.0,
                hidden_act="relu",
                layer_norm_eps=1e-3,
            ),
            "linear": phi(
                PhiForCausalLM, rope_parameters=LINEAR | FAR | {"partial_rotary_factor": 0.25}
            ),
            "yarn": phi(PhiForCausalLM, rope_parameters=YARN | FAR),
            "llama3": phi(PhiForCausalLM, rope_parameters=LLAMA3 | FAR),
        },
        stacks={"decoder": Stack(ONE_NORM)},
    ),
    Family(
        name=NAME,
        cases={"published": phi(PhiForCausalLM, partial_rotary_factor=0.25, rope_theta=500.0)},
        checks={"published": published(PUBLISHED)},
    ),
    Family(
        name=NAME,
        cases={
            "normed-grouped": phi(
                PhiForCausalLM, qk_layernorm=True, num_key_value_heads=2, layer_norm_eps=1e-3
            ),
        },
        stacks={"decoder": Stack(NORMED)},
    ),
    # They stretch all texts of a batch by its longest; we stretch each by its own length.
    Family(
        name=NAME,
        cases={
            "longrope": phi(
                PhiForCausalLM,
                rope_parameters={
                    **(LONGROPE | FAR),
                    "short_factor": [1.0, 1.3],
                    "long_factor": [2.0, 5.0],
                },
            ),
            "dynamic": phi(PhiForCausalLM, max_position_embeddings=6, rope_parameters=DYNAMIC),
        },
        stacks={"decoder": Stack(ONE_NORM)},
        pads=(),
    ),
    Family(
        name=NAME,
        cases={
            "base": phi(PhiModel),
            "base-tied": phi(PhiModel, tie_word_embeddings=True),
        },
    ),
]
