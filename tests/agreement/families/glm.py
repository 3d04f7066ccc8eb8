"""GLM-4 and GLM-4-0414, with each share of a head that is rotated."""

from agreement.comparing import Family, Stack
from agreement.disk import as_before
from agreement.families.llama import GROUPED, LAYERS, SHARED
from agreement.small import FAR, LINEAR, small
from transformers import (
    Glm4Config,
    Glm4ForCausalLM,
    Glm4Model,
    GlmConfig,
    GlmForCausalLM,
    GlmModel,
)

IDS = {"pad_token_id": 0, "eos_token_id": [2, 3]}
glm = small(GlmConfig, **GROUPED, **IDS)
glm4 = small(Glm4Config, **GROUPED, **IDS)

FUSED = {name: read for name, read in SHARED.items() if name != "gate"}
FUSED |= LAYERS.joint("mlp.gate_up_proj", ("gate", "pre"), lambda x: x.chunk(2, -1))
SANDWICHED = FUSED | {
    "attn_raw": LAYERS.output("self_attn.o_proj"),
    "mlp_raw": LAYERS.output("mlp.down_proj"),
    "attn_out": LAYERS.output("post_self_attn_layernorm"),
    "mlp_out": LAYERS.output("post_mlp_layernorm"),
    "normalized ln1_post": LAYERS.output("post_self_attn_layernorm"),
    "normalized ln2_post": LAYERS.output("post_mlp_layernorm"),
}


def cases(make, model):
    """The same of both."""
    return {
        "plain": make(model),
        "whole-tied": make(
            model,
            tie_word_embeddings=True,
            attention_bias=False,
            rms_norm_eps=1e-3,
            hidden_act="gelu",
            rope_parameters=FAR | {"partial_rotary_factor": 1.0},
        ),
        "quarter": make(
            model, num_key_value_heads=4, rope_parameters=LINEAR | {"partial_rotary_factor": 0.25}
        ),
    }


FAMILIES = [
    Family(
        name="GLM-4",
        cases=cases(glm, GlmForCausalLM),
        stacks={"decoder": Stack(FUSED)},
        checks={"disk of version 4": as_before},
    ),
    Family(name="GLM-4", cases={"base": glm(GlmModel)}),
    Family(
        name="GLM-4-0414",
        cases=cases(glm4, Glm4ForCausalLM),
        stacks={"decoder": Stack(SANDWICHED)},
        checks={"disk of version 4": as_before},
    ),
    Family(name="GLM-4-0414", cases={"base": glm4(Glm4Model)}),
]
