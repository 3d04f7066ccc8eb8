"""GPT-NeoX: side by side and one after the other, every share and scaling of its turning."""

from agreement.comparing import Family, Layers, Stack, by_heads
from agreement.disk import published
from agreement.small import FAR, LINEAR, LLAMA3, LONGROPE, YARN, small
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, GPTNeoXModel

NAME, HEADS = "GPT-NeoX, Pythia", 3
HALF = {"partial_rotary_factor": 0.5}

neox = small(GPTNeoXConfig, num_attention_heads=HEADS)

LAYERS = Layers("gpt_neox.layers")
BESIDE = {
    **LAYERS.through("input_layernorm", "resid_pre", "normalized ln1"),
    **LAYERS.joint("attention.query_key_value", "qkv", by_heads(HEADS)),
    **LAYERS.through("attention.dense", "z", "attn_out"),
    "normalized ln2": LAYERS.output("post_attention_layernorm"),
    "pre": LAYERS.output("mlp.dense_h_to_4h"),
    **LAYERS.through("mlp.dense_4h_to_h", "post", "mlp_out"),
    "resid_post": LAYERS.output(),
}
IN_TURN = BESIDE | {"resid_mid": LAYERS.input("post_attention_layernorm")}

# As of Pythia.
PUBLISHED = {
    "architectures": ["GPTNeoXForCausalLM"],
    "bos_token_id": 0,
    "eos_token_id": 0,
    "hidden_act": "gelu",
    "hidden_size": 24,
    "initializer_range": 0.02,
    "intermediate_size": 40,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 32,
    "model_type": "gpt_neox",
    "num_attention_heads": HEADS,
    "num_hidden_layers": 3,
    "rotary_emb_base": 10000,
    "rotary_pct": 0.25,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "use_cache": True,
    "use_parallel_residual": True,
    "vocab_size": 50,
}
BUFFERS = {
    "gpt_neox.layers.0.attention.bias": (1, 1, 32, 32),
    "gpt_neox.layers.0.attention.masked_bias": (),
    "gpt_neox.layers.0.attention.rotary_emb.inv_freq": (1,),
}

FAMILIES = [
    Family(
        name=NAME,
        cases={
            "plain": neox(GPTNeoXForCausalLM),
            "tied-unbiased": neox(
                GPTNeoXForCausalLM,
                tie_word_embeddings=True,
                attention_bias=False,
                hidden_act="gelu_new",
                layer_norm_eps=1e-3,
            ),
            "old-names": neox(GPTNeoXForCausalLM, rotary_pct=0.5, rotary_emb_base=77.0),
            "all-turns": neox(GPTNeoXForCausalLM, rotary_pct=1.0),
            "linear": neox(GPTNeoXForCausalLM, rope_parameters=LINEAR | HALF | FAR),
            "llama3": neox(GPTNeoXForCausalLM, rope_parameters=LLAMA3 | HALF),
            "yarn": neox(GPTNeoXForCausalLM, rope_parameters=YARN | HALF),
        },
        stacks={"decoder": Stack(BESIDE)},
    ),
    Family(
        name=NAME,
        cases={"published": neox(GPTNeoXForCausalLM, eos_token_id=0)},
        checks={"published": published(PUBLISHED, {"^lm_head": "embed_out"}, BUFFERS)},
    ),
    Family(
        name=NAME,
        cases={
            "in-turn": neox(GPTNeoXForCausalLM, use_parallel_residual=False, hidden_act="relu"),
        },
        stacks={"decoder": Stack(IN_TURN)},
    ),
    # They stretch all texts of a batch by its longest; we stretch each by its own length.
    Family(
        name=NAME,
        cases={
            "dynamic": neox(
                GPTNeoXForCausalLM,
                max_position_embeddings=6,
                rotary_pct=0.5,
                rope_scaling={"type": "dynamic", "factor": 4.0},
            ),
            "longrope": neox(
                GPTNeoXForCausalLM,
                rope_parameters={
                    **(LONGROPE | HALF),
                    "short_factor": [1.0, 1.3],
                    "long_factor": [2.0, 5.0],
                },
            ),
        },
        stacks={"decoder": Stack(BESIDE)},
        pads=(),
    ),
    Family(name=NAME, cases={"base": neox(GPTNeoXModel)}),
]
