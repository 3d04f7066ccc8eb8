"""Granite, with each of its multipliers and without them."""

from agreement.comparing import Family, Stack
from agreement.disk import as_before
from agreement.families.llama import LAYERS, SHARED
from agreement.small import FAR, YARN, small
from transformers import GraniteConfig, GraniteForCausalLM, GraniteModel

granite = small(GraniteConfig, num_key_value_heads=2)

FACTOR = 0.22
MULTIPLIERS = {
    "embedding_multiplier": 12.0,
    "attention_multiplier": 0.3,
    "residual_multiplier": FACTOR,
    "logits_scaling": 8.0,
}


def multiplied(name):
    """What a matrix gives, before and after the multiplier."""
    return LAYERS.output(name), LAYERS.output(name, lambda x: FACTOR * x)


MULTIPLIED = dict(SHARED)
MULTIPLIED["attn_raw"], MULTIPLIED["attn_out"] = multiplied("self_attn.o_proj")
MULTIPLIED["mlp_raw"], MULTIPLIED["mlp_out"] = multiplied("mlp.down_proj")

FAMILIES = [
    Family(
        name="Granite",
        cases={
            "all": granite(GraniteForCausalLM, **MULTIPLIERS, tie_word_embeddings=True),
            "residual-biased": granite(
                GraniteForCausalLM,
                residual_multiplier=FACTOR,
                attention_bias=True,
                mlp_bias=True,
                num_key_value_heads=None,
                hidden_act="gelu",
                rms_norm_eps=1e-3,
                rope_parameters=YARN | FAR,
            ),
        },
        stacks={"decoder": Stack(MULTIPLIED)},
        checks={"disk of version 4": as_before},
    ),
    Family(
        name="Granite",
        cases={
            "none": granite(GraniteForCausalLM),
            "logits": granite(GraniteForCausalLM, logits_scaling=3),
        },
        stacks={"decoder": Stack(SHARED)},
        checks={"disk of version 4": as_before},
    ),
    Family(name="Granite", cases={"base": granite(GraniteModel, **MULTIPLIERS)}),
]
