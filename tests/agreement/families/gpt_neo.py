"""GPT-Neo, with local layers of several widths, tied and not, with and without a head."""

from agreement.comparing import Family, Stack
from agreement.disk import published
from agreement.families.gpt2 import LAYERS, SHARED
from agreement.small import small
from transformers import GPTNeoConfig, GPTNeoForCausalLM, GPTNeoModel

SIZES = {
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

neo = small(GPTNeoConfig, SIZES)

APART = SHARED | {
    "q": LAYERS.output("attn.attention.q_proj"),
    "k": LAYERS.output("attn.attention.k_proj"),
    "v": LAYERS.output("attn.attention.v_proj"),
    **LAYERS.through("attn.attention.out_proj", "z", "attn_out"),
}

# As of GPT-Neo 125M, less attention_layers, which repeats attention_types.
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
            "plain": neo(GPTNeoForCausalLM),
            "local": neo(
                GPTNeoForCausalLM,
                attention_types=[[["local"], 4]],
                window_size=1,
                intermediate_size=40,
                activation_function="relu",
            ),
            "global-untied": neo(
                GPTNeoForCausalLM,
                attention_types=[[["global"], 4]],
                tie_word_embeddings=False,
                layer_norm_epsilon=1e-3,
            ),
            "mixed": neo(
                GPTNeoForCausalLM,
                attention_types=[[["local", "global", "global"], 1], [["local"], 1]],
            ),
        },
        stacks={"decoder": Stack(APART)},
    ),
    Family(
        name="GPT-Neo",
        cases={"published": neo(GPTNeoForCausalLM)},
        checks={"published": published(PUBLISHED, more=BUFFERS)},
    ),
    Family(name="GPT-Neo", cases={"base": neo(GPTNeoModel)}),
]
