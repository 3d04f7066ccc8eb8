"""GPT-J, with all and some dimensions turning, tied and not."""

from agreement.comparing import Family, Stack
from agreement.disk import published
from agreement.families.gpt2 import LAYERS, SIZES
from agreement.small import small
from transformers import GPTJConfig, GPTJForCausalLM, GPTJModel

gptj = small(GPTJConfig, SIZES | {"n_head": 3}, rotary_dim=4)

ONE_NORM = {
    **LAYERS.through("ln_1", "resid_pre", "normalized ln1"),
    "normalized ln2": LAYERS.output("ln_1"),
    "q": LAYERS.output("attn.q_proj"),
    "k": LAYERS.output("attn.k_proj"),
    "v": LAYERS.output("attn.v_proj"),
    **LAYERS.through("attn.out_proj", "z", "attn_out"),
    "pre": LAYERS.output("mlp.fc_in"),
    **LAYERS.through("mlp.fc_out", "post", "mlp_out"),
    "resid_post": LAYERS.output(),
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
            "plain": gptj(GPTJForCausalLM),
            "all-turns": gptj(
                GPTJForCausalLM, rotary_dim=8, n_inner=40, activation_function="relu"
            ),
            "tied": gptj(GPTJForCausalLM, tie_word_embeddings=True, layer_norm_epsilon=1e-3),
        },
        stacks={"decoder": Stack(ONE_NORM)},
    ),
    Family(
        name="GPT-J",
        cases={"published": gptj(GPTJForCausalLM)},
        checks={"published": published(PUBLISHED, more=BUFFERS)},
    ),
    Family(
        name="GPT-J",
        cases={"base": gptj(GPTJModel), "base-tied": gptj(GPTJModel, tie_word_embeddings=True)},
    ),
]
