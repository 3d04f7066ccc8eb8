"""BLOOM, with numbers of heads that are powers of two and not, and with a normed stream."""

from agreement.comparing import Family, Stack, by_heads
from agreement.disk import published
from agreement.families.gpt2 import LAYERS
from agreement.small import small
from transformers import BloomConfig, BloomForCausalLM, BloomModel

SIZES = {
    "vocab_size": 50,
    "hidden_size": 24,
    "n_layer": 3,
    "n_head": 4,
    "attn_implementation": "eager",
}

bloom = small(BloomConfig, SIZES)


def stacks(n_heads):
    """Their scores grow with the key's index, ours fall with its distance: a constant a row."""
    shared = {
        **LAYERS.through("input_layernorm", "resid_pre", "normalized ln1"),
        **LAYERS.joint("self_attention.query_key_value", "qkv", by_heads(n_heads)),
        **LAYERS.through("self_attention.dense", "z", "attn_out"),
        **LAYERS.through("post_attention_layernorm", "resid_mid", "normalized ln2"),
        "pre": LAYERS.output("mlp.dense_h_to_4h"),
        **LAYERS.through("mlp.dense_4h_to_h", "post", "mlp_out"),
        "resid_post": LAYERS.output(),
    }
    return {"decoder": Stack(shared, shifted_scores=True)}


# As of BLOOM 560m.
PUBLISHED = {
    "apply_residual_connection_post_layernorm": False,
    "architectures": ["BloomForCausalLM"],
    "attention_dropout": 0.0,
    "attention_softmax_in_fp32": True,
    "bias_dropout_fusion": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_dropout": 0.0,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "masked_softmax_fusion": True,
    "model_type": "bloom",
    "n_embed": 24,
    "n_inner": None,
    "n_layer": 3,
    "num_attention_heads": 4,
    "offset_alibi": 100,
    "pad_token_id": 3,
    "pretraining_tp": 1,
    "skip_bias_add": True,
    "skip_bias_add_qkv": False,
    "slow_but_exact": False,
    "unk_token_id": 0,
    "use_cache": True,
    "vocab_size": 50,
}

FAMILIES = [
    Family(
        name="BLOOM",
        cases={
            "plain": bloom(BloomForCausalLM),
            "untied": bloom(BloomForCausalLM, tie_word_embeddings=False, layer_norm_epsilon=1e-3),
            "slow-whole": bloom(BloomForCausalLM, slow_but_exact=True),
        },
        stacks=stacks(4),
    ),
    Family(
        name="BLOOM",
        cases={
            "normed-stream": bloom(
                BloomForCausalLM, n_head=3, apply_residual_connection_post_layernorm=True
            ),
        },
        stacks=stacks(3),
    ),
    Family(name="BLOOM", cases={"six": bloom(BloomForCausalLM, n_head=6)}, stacks=stacks(6)),
    Family(
        name="BLOOM",
        cases={"published": bloom(BloomModel)},
        checks={"published": published(PUBLISHED)},
    ),
    Family(name="BLOOM", cases={"base": bloom(BloomModel)}),
]
