"""GPT-NeoX: side by side and one after the other, every share and scaling of its turning."""

from agreement.comparing import Family, Stack, from_disk, published
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, GPTNeoXModel

NAME, HEADS = "GPT-NeoX, Pythia", 3


def config(**rest):
    told = {
        "vocab_size": 50,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": HEADS,
        "max_position_embeddings": 32,
        "attn_implementation": "eager",
    }
    return GPTNeoXConfig(**(told | rest))


def stretched(kind, **rest):
    rope = {"rope_type": kind, "factor": 4.0, "partial_rotary_factor": 0.5} | rest
    return lambda: GPTNeoXForCausalLM(config(rope_parameters=rope))


def gave(name, change=lambda x: x):
    return lambda seen, layer: change(seen.gave[f"gpt_neox.layers.{layer}.{name}"])


def given(name):
    return lambda seen, layer: seen.given[f"gpt_neox.layers.{layer}.{name}"]


def part_of_qkv(n):
    """Queries, keys or values of the joint product."""
    return gave("attention.query_key_value", lambda x: x.unflatten(-1, (HEADS, 3, -1))[..., n, :])


BESIDE = {
    "resid_pre": given("input_layernorm"),
    "normalized ln1": gave("input_layernorm"),
    "q": part_of_qkv(0),
    "k": part_of_qkv(1),
    "v": part_of_qkv(2),
    "z": given("attention.dense"),
    "attn_out": gave("attention.dense"),
    "normalized ln2": gave("post_attention_layernorm"),
    "pre": gave("mlp.dense_h_to_4h"),
    "post": given("mlp.dense_4h_to_h"),
    "mlp_out": gave("mlp.dense_4h_to_h"),
    "resid_post": lambda seen, layer: seen.gave[f"gpt_neox.layers.{layer}"],
}
IN_TURN = BESIDE | {"resid_mid": given("post_attention_layernorm")}

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
            "plain": lambda: GPTNeoXForCausalLM(config()),
            "tied-unbiased": lambda: GPTNeoXForCausalLM(
                config(
                    tie_word_embeddings=True,
                    attention_bias=False,
                    hidden_act="gelu_new",
                    layer_norm_eps=1e-3,
                )
            ),
            "old-names": lambda: GPTNeoXForCausalLM(config(rotary_pct=0.5, rotary_emb_base=77.0)),
            "all-turns": lambda: GPTNeoXForCausalLM(config(rotary_pct=1.0)),
            "linear": stretched("linear", rope_theta=500.0),
            "llama3": stretched(
                "llama3",
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=16,
            ),
            "yarn": stretched("yarn", original_max_position_embeddings=16),
        },
        stacks={"decoder": Stack("gpt_neox.layers", BESIDE)},
        checks={"disk": from_disk},
    ),
    Family(
        name=NAME,
        cases={"published": lambda: GPTNeoXForCausalLM(config(eos_token_id=0))},
        stacks={},
        checks={"disk": published(PUBLISHED, {"^lm_head": "embed_out"}, BUFFERS)},
    ),
    Family(
        name=NAME,
        cases={
            "in-turn": lambda: GPTNeoXForCausalLM(
                config(use_parallel_residual=False, hidden_act="relu")
            ),
        },
        stacks={"decoder": Stack("gpt_neox.layers", IN_TURN)},
    ),
    # They stretch all texts of a batch by its longest; we stretch each by its own length.
    Family(
        name=NAME,
        cases={
            "dynamic": lambda: GPTNeoXForCausalLM(
                config(
                    max_position_embeddings=6,
                    rotary_pct=0.5,
                    rope_scaling={"type": "dynamic", "factor": 4.0},
                )
            ),
            "longrope": stretched(
                "longrope",
                original_max_position_embeddings=6,
                short_factor=[1.0, 1.3],
                long_factor=[2.0, 5.0],
            ),
        },
        stacks={"decoder": Stack("gpt_neox.layers", BESIDE)},
        pads=(),
    ),
    Family(name=NAME, cases={"base": lambda: GPTNeoXModel(config())}, stacks={}),
]
