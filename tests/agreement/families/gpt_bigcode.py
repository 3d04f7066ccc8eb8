"""GPT-BigCode, with one key for all queries and one for each."""

from agreement.comparing import Family, Stack, by_heads
from agreement.disk import published
from agreement.families.gpt2 import LAYERS, SHARED, SIZES
from agreement.small import small
from transformers import GPTBigCodeConfig, GPTBigCodeForCausalLM, GPTBigCodeModel

NAME, HEADS, D_HEAD = "GPT-BigCode, StarCoder", 4, 6

bigcode = small(GPTBigCodeConfig, SIZES)


def stacks(cut):
    """Where all is, given how the joint product is cut."""
    return {"decoder": Stack(SHARED | LAYERS.joint("attn.c_attn", "qkv", cut))}


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
            "plain": bigcode(GPTBigCodeForCausalLM),
            "untied": bigcode(
                GPTBigCodeForCausalLM,
                tie_word_embeddings=False,
                n_inner=40,
                activation_function="relu",
            ),
        },
        stacks=stacks(lambda x: x.split((HEADS * D_HEAD, D_HEAD, D_HEAD), -1)),
    ),
    Family(
        name=NAME,
        cases={
            "published": bigcode(
                GPTBigCodeForCausalLM, n_inner=40, activation_function="gelu", eos_token_id=0
            ),
        },
        checks={"published": published(PUBLISHED, more={"transformer.bias": (32, 32)})},
    ),
    Family(
        name=NAME,
        cases={
            "key-each": bigcode(GPTBigCodeForCausalLM, multi_query=False),
            "key-each-unscaled": bigcode(
                GPTBigCodeForCausalLM,
                multi_query=False,
                scale_attn_weights=False,
                layer_norm_epsilon=1e-3,
            ),
        },
        stacks=stacks(by_heads(HEADS)),
    ),
    Family(name=NAME, cases={"base": bigcode(GPTBigCodeModel)}),
]
