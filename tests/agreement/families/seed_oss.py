"""Seed-OSS, with each of its biases."""

from agreement.comparing import Family, Stack
from agreement.disk import as_before
from agreement.families.llama import GROUPED, SHARED
from agreement.small import FAR, YARN, small
from transformers import SeedOssConfig, SeedOssForCausalLM, SeedOssModel

seed = small(SeedOssConfig, **GROUPED)

FAMILIES = [
    Family(
        name="Seed-OSS",
        cases={
            "plain": seed(SeedOssForCausalLM),
            "output-biased-tied": seed(
                SeedOssForCausalLM,
                attention_bias=False,
                attention_out_bias=True,
                mlp_bias=True,
                tie_word_embeddings=True,
                hidden_act="gelu",
                rms_norm_eps=1e-3,
            ),
            "narrow-heads": seed(
                SeedOssForCausalLM,
                head_dim=None,
                num_key_value_heads=None,
                rope_parameters=YARN | FAR,
            ),
        },
        stacks={"decoder": Stack(SHARED)},
        checks={"disk of version 4": as_before},
    ),
    Family(name="Seed-OSS", cases={"base": seed(SeedOssModel)}),
]
