"""Falcon, old and new, in turn and in parallel, with rotary positions and with ALiBi."""

import torch
from agreement.comparing import Family, Layers, Stack, both, inputs_of, off
from agreement.disk import as_before, published
from agreement.small import FAR, LINEAR, SIZES, small
from transformers import FalconConfig, FalconForCausalLM

IDS = {"bos_token_id": 1, "eos_token_id": 2}
OWN = {name: size for name, size in SIZES.items() if name != "intermediate_size"}
falcon = small(FalconConfig, OWN, **IDS, ffn_hidden_size=40)

LAYERS = Layers("transformer.h")
HEADS, D_HEAD = 4, 6


def causal(config):
    """With ALiBi by their fused kernel: the explicit one, which gives patterns, adds it twice."""
    if config.alibi:
        config._attn_implementation, config.output_attentions = "sdpa", False
    return FalconForCausalLM(config)


def base(config):
    return causal(config).transformer


def by_groups(n_kv):
    """Cuts rows [kv_head][q … q k v][d_head]."""

    def cut(x):
        grouped = x.unflatten(-1, (n_kv, HEADS // n_kv + 2, D_HEAD))
        return tuple(part.flatten(-3) for part in grouped.split([HEADS // n_kv, 1, 1], -2))

    return cut


def stacks(norms, n_kv=1, **stack):
    """Where all is, given the names of the norms and the number of key/value heads."""
    first, second = norms
    shared = {
        **LAYERS.through(first, "resid_pre", "normalized ln1"),
        **LAYERS.joint("self_attention.query_key_value", "qkv", by_groups(n_kv)),
        **LAYERS.through("self_attention.dense", "z", "attn_out"),
        "normalized ln2": LAYERS.output(second),
        "pre": LAYERS.output("mlp.dense_h_to_4h"),
        "post": LAYERS.input("mlp.dense_4h_to_h"),
        "resid_post": LAYERS.output(),
    }
    return {"decoder": Stack(shared, **stack)}


ONE, TWO = ("input_layernorm",) * 2, ("ln_attn", "ln_mlp")
IN_TURN = ("input_layernorm", "post_attention_layernorm")
UNSEEN = {"scores_each": 0}
"""The fused kernel gives out no scores."""
RW = {
    "alibi": True,
    "multi_query": False,
    "parallel_attn": False,
    "bias": True,
}


@torch.no_grad()
def long_text(theirs, ours):
    """600 tokens, whose biases are rounded."""
    return off(*both((theirs, ours), inputs_of(ours, rows=1, pos=600)))


# As of Falcon 7B.
PUBLISHED = {
    "alibi": False,
    "apply_residual_connection_post_layernorm": False,
    "architectures": ["FalconForCausalLM"],
    "attention_dropout": 0.0,
    "bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_dropout": 0.0,
    "hidden_size": 24,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "falcon",
    "multi_query": True,
    "new_decoder_architecture": False,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "parallel_attn": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 50,
}

FAMILIES = [
    Family(
        name="Falcon",
        cases={
            "7b": falcon(causal),
            "7b-biased-untied": falcon(
                causal,
                bias=True,
                tie_word_embeddings=False,
                layer_norm_epsilon=1e-3,
                activation="relu",
                rope_parameters=LINEAR | FAR,
            ),
        },
        stacks=stacks(ONE),
        checks={"disk of version 4": as_before},
    ),
    Family(
        name="Falcon",
        cases={
            "40b": falcon(causal, new_decoder_architecture=True, num_kv_heads=2),
            "40b-biased": falcon(causal, new_decoder_architecture=True, num_kv_heads=2, bias=True),
        },
        stacks=stacks(TWO, 2),
    ),
    Family(
        name="Falcon",
        cases={
            "one-norm": falcon(causal, new_decoder_architecture=True, num_ln_in_parallel_attn=1),
            "all-keys": falcon(causal, multi_query=False),
        },
        stacks=stacks(ONE, HEADS),
    ),
    Family(
        name="Falcon",
        cases={"in-turn": falcon(causal, parallel_attn=False)},
        stacks=stacks(IN_TURN),
    ),
    Family(
        name="Falcon",
        cases={
            "rw": falcon(causal, **RW, max_position_embeddings=600),
            "rw-six": falcon(causal, **RW, num_attention_heads=6, max_position_embeddings=600),
        },
        checks={"long text": long_text},
    ),
    Family(
        name="Falcon",
        cases={"rw-short": falcon(causal, **RW)},
        stacks=stacks(IN_TURN, HEADS, **UNSEEN),
    ),
    Family(
        name="Falcon",
        cases={"published": falcon(causal, ffn_hidden_size=None, max_position_embeddings=2048)},
        checks={"published": published(PUBLISHED)},
    ),
    Family(name="Falcon", cases={"base": falcon(base)}),
]
