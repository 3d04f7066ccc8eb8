"""BLOOM, with numbers of heads that are powers of two and not, and with a normed stream."""

from agreement.comparing import Family, Stack, from_disk, published
from transformers import BloomConfig, BloomForCausalLM, BloomModel


def config(**rest):
    told = {
        "vocab_size": 50,
        "hidden_size": 24,
        "n_layer": 3,
        "n_head": 4,
        "attn_implementation": "eager",
    }
    return BloomConfig(**(told | rest))


def gave(name, change=lambda x: x):
    return lambda seen, layer: change(seen.gave[f"transformer.h.{layer}.{name}"])


def given(name):
    return lambda seen, layer: seen.given[f"transformer.h.{layer}.{name}"]


def shared(n_heads):
    def part_of_qkv(n):
        """Queries, keys or values of the joint product."""
        return gave(
            "self_attention.query_key_value",
            lambda x: x.unflatten(-1, (n_heads, 3, -1))[..., n, :],
        )

    return {
        "resid_pre": given("input_layernorm"),
        "normalized ln1": gave("input_layernorm"),
        "q": part_of_qkv(0),
        "k": part_of_qkv(1),
        "v": part_of_qkv(2),
        "z": given("self_attention.dense"),
        "attn_out": gave("self_attention.dense"),
        "resid_mid": given("post_attention_layernorm"),
        "normalized ln2": gave("post_attention_layernorm"),
        "pre": gave("mlp.dense_h_to_4h"),
        "post": given("mlp.dense_4h_to_h"),
        "mlp_out": gave("mlp.dense_4h_to_h"),
        "resid_post": lambda seen, layer: seen.gave[f"transformer.h.{layer}"],
    }


def family(n_heads, cases):
    """Their scores grow with the key's index, ours fall with its distance: a constant a row."""
    stack = Stack("transformer.h", shared(n_heads), shifted_scores=True)
    return Family(name="BLOOM", cases=cases, stacks={"decoder": stack}, checks={"disk": from_disk})


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
    family(
        4,
        {
            "plain": lambda: BloomForCausalLM(config()),
            "untied": lambda: BloomForCausalLM(
                config(tie_word_embeddings=False, layer_norm_epsilon=1e-3)
            ),
            "slow-whole": lambda: BloomForCausalLM(config(slow_but_exact=True)),
        },
    ),
    family(
        3,
        {
            "normed-stream": lambda: BloomForCausalLM(
                config(n_head=3, apply_residual_connection_post_layernorm=True)
            ),
        },
    ),
    family(6, {"six": lambda: BloomForCausalLM(config(n_head=6))}),
    Family(
        name="BLOOM",
        cases={"published": lambda: BloomModel(config())},
        stacks={},
        checks={"disk": published(PUBLISHED)},
    ),
    Family(name="BLOOM", cases={"base": lambda: BloomModel(config())}, stacks={}),
]
