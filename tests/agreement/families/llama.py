"""Llama, with every scaling of its rotary positions, biases, a tied head, and base models."""

from agreement.comparing import Family, Stack
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel

SHORT, LONG = [1.0, 1.3, 2.0, 2.5], [1.0, 3.0, 7.0, 9.0]


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
        "attn_implementation": "eager",
    }
    return LlamaConfig(**(told | rest))


def stretched(kind, **rest):
    rope = {"rope_type": kind, "factor": 4.0, "rope_theta": 500.0} | rest
    return lambda: LlamaForCausalLM(config(rope_parameters=rope))


def gave(name):
    return lambda seen, layer: seen.gave[f"model.layers.{layer}.{name}"]


def given(name):
    return lambda seen, layer: seen.given[f"model.layers.{layer}.{name}"]


SHARED = {
    "resid_pre": given("input_layernorm"),
    "normalized ln1": gave("input_layernorm"),
    "q": gave("self_attn.q_proj"),
    "k": gave("self_attn.k_proj"),
    "v": gave("self_attn.v_proj"),
    "z": given("self_attn.o_proj"),
    "attn_out": gave("self_attn.o_proj"),
    "resid_mid": given("post_attention_layernorm"),
    "normalized ln2": gave("post_attention_layernorm"),
    "gate": gave("mlp.gate_proj"),
    "pre": gave("mlp.up_proj"),
    "post": given("mlp.down_proj"),
    "mlp_out": gave("mlp.down_proj"),
    "resid_post": lambda seen, layer: seen.gave[f"model.layers.{layer}"],
}


FAMILIES = [
    Family(
        name="Llama",
        cases={
            "plain": lambda: LlamaForCausalLM(config()),
            "biased-tied": lambda: LlamaForCausalLM(
                config(
                    attention_bias=True,
                    mlp_bias=True,
                    tie_word_embeddings=True,
                    rms_norm_eps=1e-3,
                    hidden_act="gelu_pytorch_tanh",
                )
            ),
            "all-heads": lambda: LlamaForCausalLM(
                config(
                    head_dim=None, num_key_value_heads=None, rope_parameters={"rope_theta": 77.0}
                )
            ),
            "linear": stretched("linear"),
            "llama3": stretched(
                "llama3",
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=16,
            ),
            "yarn": stretched("yarn", original_max_position_embeddings=16),
            "yarn-told": stretched(
                "yarn",
                original_max_position_embeddings=16,
                beta_fast=8.0,
                beta_slow=2.0,
                mscale=0.7,
                mscale_all_dim=0.4,
                truncate=False,
            ),
        },
        stacks={"decoder": Stack("model.layers", SHARED)},
    ),
    # They stretch all texts of a batch by its longest, and remember that in later calls; we stretch
    # each by its own length, so that no number depends on its company.
    Family(
        name="Llama",
        cases={
            "dynamic": lambda: LlamaForCausalLM(
                config(
                    max_position_embeddings=6,
                    rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 500.0},
                )
            ),
            "longrope": stretched(
                "longrope",
                original_max_position_embeddings=6,
                short_factor=SHORT,
                long_factor=LONG,
            ),
        },
        stacks={"decoder": Stack("model.layers", SHARED)},
        pads=(),
    ),
    Family(name="Llama", cases={"base": lambda: LlamaModel(config())}, stacks={}),
]
