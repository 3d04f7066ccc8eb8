"""GPT-BigCode, with one key for all queries and one for each."""

from agreement.comparing import Family, Stack, from_disk, published
from transformers import GPTBigCodeConfig, GPTBigCodeForCausalLM, GPTBigCodeModel

NAME, HEADS, D_HEAD = "GPT-BigCode, StarCoder", 4, 6


def config(**rest):
    told = {
        "vocab_size": 50,
        "n_positions": 32,
        "n_embd": HEADS * D_HEAD,
        "n_layer": 3,
        "n_head": HEADS,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "attn_implementation": "eager",
    }
    return GPTBigCodeConfig(**(told | rest))


def gave(name, change=lambda x: x):
    return lambda seen, layer: change(seen.gave[f"transformer.h.{layer}.{name}"])


def given(name):
    return lambda seen, layer: seen.given[f"transformer.h.{layer}.{name}"]


def stack(split):
    """Where all is, given how the joint product is split."""
    return Stack(
        "transformer.h",
        {
            "resid_pre": given("ln_1"),
            "normalized ln1": gave("ln_1"),
            "q": gave("attn.c_attn", lambda x: split(x)[0]),
            "k": gave("attn.c_attn", lambda x: split(x)[1]),
            "v": gave("attn.c_attn", lambda x: split(x)[2]),
            "z": given("attn.c_proj"),
            "attn_out": gave("attn.c_proj"),
            "resid_mid": given("ln_2"),
            "normalized ln2": gave("ln_2"),
            "pre": gave("mlp.c_fc"),
            "post": given("mlp.c_proj"),
            "mlp_out": gave("mlp.c_proj"),
            "resid_post": lambda seen, layer: seen.gave[f"transformer.h.{layer}"],
        },
    )


# As of StarCoder.
PUBLISHED = {
    "activation_function": "gelu",
    "architectures": ["GPTBigCodeForCausalLM"],
    "attention_softmax_in_fp32": True,
    "multi_query": True,
    "attn_pdrop": 0.1,
    "bos_token_id": 0,
    "embd_pdrop": 0.1,
    "eos_token_id": 0,
    "inference_runner": 0,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "max_batch_size": None,
    "max_sequence_length": None,
    "model_type": "gpt_bigcode",
    "n_embd": HEADS * D_HEAD,
    "n_head": HEADS,
    "n_inner": 40,
    "n_layer": 3,
    "n_positions": 32,
    "pad_key_length": True,
    "pre_allocate_kv_cache": False,
    "resid_pdrop": 0.1,
    "scale_attention_softmax_in_fp32": True,
    "scale_attn_weights": True,
    "summary_type": "cls_index",
    "use_cache": True,
    "validate_runner_input": True,
    "vocab_size": 50,
}

FAMILIES = [
    Family(
        name=NAME,
        cases={
            "plain": lambda: GPTBigCodeForCausalLM(config()),
            "untied": lambda: GPTBigCodeForCausalLM(
                config(tie_word_embeddings=False, n_inner=40, activation_function="relu")
            ),
        },
        stacks={
            "decoder": stack(lambda x: x.split((HEADS * D_HEAD, D_HEAD, D_HEAD), -1)),
        },
        checks={"disk": from_disk},
    ),
    Family(
        name=NAME,
        cases={
            "published": lambda: GPTBigCodeForCausalLM(
                config(n_inner=40, activation_function="gelu", eos_token_id=0)
            ),
        },
        stacks={},
        checks={"disk": published(PUBLISHED, more={"transformer.bias": (32, 32)})},
    ),
    Family(
        name=NAME,
        cases={
            "key-each": lambda: GPTBigCodeForCausalLM(config(multi_query=False)),
            "key-each-unscaled": lambda: GPTBigCodeForCausalLM(
                config(multi_query=False, scale_attn_weights=False, layer_norm_epsilon=1e-3)
            ),
        },
        stacks={
            "decoder": stack(lambda x: x.unflatten(-1, (HEADS, 3, D_HEAD)).unbind(-2)),
        },
        checks={"disk": from_disk},
    ),
    Family(name=NAME, cases={"base": lambda: GPTBigCodeModel(config())}, stacks={}),
]
