"""GPT-Neo, with local layers of several widths, tied and not, with and without a head."""

from agreement.comparing import Family, Stack, from_disk, published
from transformers import GPTNeoConfig, GPTNeoForCausalLM, GPTNeoModel


def config(**rest):
    told = {
        "vocab_size": 50,
        "max_position_embeddings": 32,
        "hidden_size": 24,
        "num_layers": 4,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 2]],
        "window_size": 3,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "attn_implementation": "eager",
    }
    return GPTNeoConfig(**(told | rest))


def gave(name):
    return lambda seen, layer: seen.gave[f"transformer.h.{layer}.{name}"]


def given(name):
    return lambda seen, layer: seen.given[f"transformer.h.{layer}.{name}"]


SHARED = {
    "resid_pre": given("ln_1"),
    "normalized ln1": gave("ln_1"),
    "q": gave("attn.attention.q_proj"),
    "k": gave("attn.attention.k_proj"),
    "v": gave("attn.attention.v_proj"),
    "z": given("attn.attention.out_proj"),
    "attn_out": gave("attn.attention.out_proj"),
    "resid_mid": given("ln_2"),
    "normalized ln2": gave("ln_2"),
    "pre": gave("mlp.c_fc"),
    "post": given("mlp.c_proj"),
    "mlp_out": gave("mlp.c_proj"),
    "resid_post": lambda seen, layer: seen.gave[f"transformer.h.{layer}"],
}

# As of GPT-Neo 125M, less attention_layers, which says the same as attention_types.
PUBLISHED = {
    "activation_function": "gelu_new",
    "architectures": ["GPTNeoForCausalLM"],
    "attention_dropout": 0,
    "attention_types": [[["global", "local"], 2]],
    "bos_token_id": 0,
    "embed_dropout": 0,
    "eos_token_id": 1,
    "gradient_checkpointing": False,
    "hidden_size": 24,
    "initializer_range": 0.02,
    "intermediate_size": None,
    "layer_norm_epsilon": 1e-05,
    "max_position_embeddings": 32,
    "model_type": "gpt_neo",
    "num_heads": 4,
    "num_layers": 4,
    "resid_dropout": 0,
    "summary_activation": None,
    "use_cache": True,
    "vocab_size": 50,
    "window_size": 3,
}
BUFFERS = {
    "transformer.h.0.attn.attention.bias": (1, 1, 32, 32),
    "transformer.h.0.attn.attention.masked_bias": (),
}

FAMILIES = [
    Family(
        name="GPT-Neo",
        cases={
            "plain": lambda: GPTNeoForCausalLM(config()),
            "local": lambda: GPTNeoForCausalLM(
                config(
                    attention_types=[[["local"], 4]],
                    window_size=1,
                    intermediate_size=40,
                    activation_function="relu",
                )
            ),
            "global-untied": lambda: GPTNeoForCausalLM(
                config(
                    attention_types=[[["global"], 4]],
                    tie_word_embeddings=False,
                    layer_norm_epsilon=1e-3,
                )
            ),
            "mixed": lambda: GPTNeoForCausalLM(
                config(attention_types=[[["local", "global", "global"], 1], [["local"], 1]])
            ),
        },
        stacks={"decoder": Stack("transformer.h", SHARED)},
        checks={"disk": from_disk},
    ),
    Family(
        name="GPT-Neo",
        cases={"published": lambda: GPTNeoForCausalLM(config())},
        stacks={},
        checks={"disk": published(PUBLISHED, more=BUFFERS)},
    ),
    Family(name="GPT-Neo", cases={"base": lambda: GPTNeoModel(config())}, stacks={}),
]
