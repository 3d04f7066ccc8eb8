"""GPT-J, with all and some dimensions turning, tied and not."""

from agreement.comparing import Family, Stack, from_disk, published
from transformers import GPTJConfig, GPTJForCausalLM, GPTJModel


def config(**rest):
    told = {
        "vocab_size": 50,
        "n_positions": 32,
        "n_embd": 24,
        "n_layer": 3,
        "n_head": 3,
        "rotary_dim": 4,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "attn_implementation": "eager",
    }
    return GPTJConfig(**(told | rest))


def gave(name):
    return lambda seen, layer: seen.gave[f"transformer.h.{layer}.{name}"]


def given(name):
    return lambda seen, layer: seen.given[f"transformer.h.{layer}.{name}"]


SHARED = {
    "resid_pre": given("ln_1"),
    "normalized ln1": gave("ln_1"),
    "normalized ln2": gave("ln_1"),
    "q": gave("attn.q_proj"),
    "k": gave("attn.k_proj"),
    "v": gave("attn.v_proj"),
    "z": given("attn.out_proj"),
    "attn_out": gave("attn.out_proj"),
    "pre": gave("mlp.fc_in"),
    "post": given("mlp.fc_out"),
    "mlp_out": gave("mlp.fc_out"),
    "resid_post": lambda seen, layer: seen.gave[f"transformer.h.{layer}"],
}

# As of GPT-J 6B.
PUBLISHED = {
    "activation_function": "gelu_new",
    "architectures": ["GPTJForCausalLM"],
    "attn_pdrop": 0.0,
    "bos_token_id": 0,
    "embd_pdrop": 0.0,
    "eos_token_id": 1,
    "gradient_checkpointing": False,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gptj",
    "n_embd": 24,
    "n_head": 3,
    "n_inner": None,
    "n_layer": 3,
    "n_positions": 32,
    "resid_pdrop": 0.0,
    "rotary": True,
    "rotary_dim": 4,
    "scale_attn_weights": True,
    "summary_activation": None,
    "summary_type": "cls_index",
    "tie_word_embeddings": False,
    "tokenizer_class": "GPT2Tokenizer",
    "use_cache": True,
    "vocab_size": 50,
}
BUFFERS = {
    "transformer.h.0.attn.bias": (1, 1, 32, 32),
    "transformer.h.0.attn.masked_bias": (),
}

FAMILIES = [
    Family(
        name="GPT-J",
        cases={
            "plain": lambda: GPTJForCausalLM(config()),
            "all-turns": lambda: GPTJForCausalLM(
                config(rotary_dim=8, n_inner=40, activation_function="relu")
            ),
            "tied": lambda: GPTJForCausalLM(
                config(tie_word_embeddings=True, layer_norm_epsilon=1e-3)
            ),
        },
        stacks={"decoder": Stack("transformer.h", SHARED)},
        checks={"disk": from_disk},
    ),
    Family(
        name="GPT-J",
        cases={"published": lambda: GPTJForCausalLM(config())},
        stacks={},
        checks={"disk": published(PUBLISHED, more=BUFFERS)},
    ),
    Family(
        name="GPT-J",
        cases={
            "base": lambda: GPTJModel(config()),
            "base-tied": lambda: GPTJModel(config(tie_word_embeddings=True)),
        },
        stacks={},
    ),
]
