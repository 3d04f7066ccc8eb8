"""GPT-2, with its scalings of scores, with and without a head."""

from agreement.comparing import Family, Layers, Stack
from agreement.small import small
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model

SIZES = {
    "vocab_size": 50,
    "n_positions": 32,
    "n_embd": 24,
    "n_layer": 3,
    "n_head": 4,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "attn_implementation": "eager",
}

gpt2 = small(GPT2Config, SIZES)

LAYERS = Layers("transformer.h")
SHARED = {
    **LAYERS.through("ln_1", "resid_pre", "normalized ln1"),
    **LAYERS.joint("attn.c_attn", "qkv", lambda x: x.chunk(3, -1)),
    **LAYERS.through("attn.c_proj", "z", "attn_out"),
    **LAYERS.through("ln_2", "resid_mid", "normalized ln2"),
    "pre": LAYERS.output("mlp.c_fc"),
    **LAYERS.through("mlp.c_proj", "post", "mlp_out"),
    "resid_post": LAYERS.output(),
}

FAMILIES = [
    Family(
        name="GPT-2",
        cases={
            "plain": gpt2(GPT2LMHeadModel),
            "by-layer": gpt2(
                GPT2LMHeadModel, scale_attn_by_inverse_layer_idx=True, activation_function="relu"
            ),
            "unscaled-untied": gpt2(
                GPT2LMHeadModel,
                scale_attn_weights=False,
                tie_word_embeddings=False,
                n_inner=40,
                activation_function="gelu",
                layer_norm_epsilon=1e-3,
            ),
        },
        stacks={"decoder": Stack(SHARED)},
    ),
    Family(name="GPT-2", cases={"base": gpt2(GPT2Model)}),
]
