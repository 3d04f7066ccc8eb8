"""Phi-1 and 2, with grouped heads, norms of queries and keys, every share and scaling."""

from agreement.comparing import Family, Stack, from_disk, published
from transformers import PhiConfig, PhiForCausalLM, PhiModel

NAME = "Phi-1, Phi-2"


def config(**rest):
    told = {
        "vocab_size": 50,
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 32,
        "attn_implementation": "eager",
    }
    return PhiConfig(**(told | rest))


def stretched(kind, **rest):
    rope = {"rope_type": kind, "factor": 4.0, "rope_theta": 500.0} | rest
    return lambda: PhiForCausalLM(config(rope_parameters=rope))


def gave(name):
    return lambda seen, layer: seen.gave[f"model.layers.{layer}.{name}"]


def given(name):
    return lambda seen, layer: seen.given[f"model.layers.{layer}.{name}"]


SHARED = {
    "resid_pre": given("input_layernorm"),
    "normalized ln1": gave("input_layernorm"),
    "normalized ln2": gave("input_layernorm"),
    "q": gave("self_attn.q_proj"),
    "k": gave("self_attn.k_proj"),
    "v": gave("self_attn.v_proj"),
    "z": given("self_attn.dense"),
    "attn_out": gave("self_attn.dense"),
    "pre": gave("mlp.fc1"),
    "post": given("mlp.fc2"),
    "mlp_out": gave("mlp.fc2"),
    "resid_post": lambda seen, layer: seen.gave[f"model.layers.{layer}"],
}


def normed(name):
    """Their heads come before their positions."""
    return lambda seen, layer: seen.gave[f"model.layers.{layer}.{name}"].transpose(1, 2)


NORMED = SHARED | {
    "q_normalized": normed("self_attn.q_layernorm"),
    "k_normalized": normed("self_attn.k_layernorm"),
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
            "plain": lambda: PhiForCausalLM(config()),
            "tied-all-turns": lambda: PhiForCausalLM(
                config(
                    tie_word_embeddings=True,
                    partial_rotary_factor=1.0,
                    hidden_act="relu",
                    layer_norm_eps=1e-3,
                )
            ),
            "linear": stretched("linear", partial_rotary_factor=0.25),
            "yarn": stretched("yarn", original_max_position_embeddings=16),
            "llama3": stretched(
                "llama3",
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=16,
            ),
        },
        stacks={"decoder": Stack("model.layers", SHARED)},
        checks={"disk": from_disk},
    ),
    Family(
        name=NAME,
        cases={
            "published": lambda: PhiForCausalLM(
                config(partial_rotary_factor=0.25, rope_theta=500.0)
            ),
        },
        stacks={},
        checks={"disk": published(PUBLISHED)},
    ),
    Family(
        name=NAME,
        cases={
            "normed-grouped": lambda: PhiForCausalLM(
                config(qk_layernorm=True, num_key_value_heads=2, layer_norm_eps=1e-3)
            ),
        },
        stacks={"decoder": Stack("model.layers", NORMED)},
    ),
    # They stretch all texts of a batch by its longest; we stretch each by its own length.
    Family(
        name=NAME,
        cases={
            "longrope": stretched(
                "longrope",
                original_max_position_embeddings=6,
                short_factor=[1.0, 1.3],
                long_factor=[2.0, 5.0],
            ),
            "dynamic": lambda: PhiForCausalLM(
                config(
                    max_position_embeddings=6,
                    rope_parameters={"rope_type": "dynamic", "factor": 4.0},
                )
            ),
        },
        stacks={"decoder": Stack("model.layers", SHARED)},
        pads=(),
    ),
    Family(
        name=NAME,
        cases={
            "base": lambda: PhiModel(config()),
            "base-tied": lambda: PhiModel(config(tie_word_embeddings=True)),
        },
        stacks={},
    ),
]
