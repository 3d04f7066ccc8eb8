"""OLMo 1 and 3, OLMoE: norms without weights, clipping, windows by layer, experts."""

from agreement.comparing import Family, Stack
from agreement.disk import as_before, changed, read, written
from agreement.families.llama import LAYERS, SHARED
from agreement.families.mixtures import CHECKS, MIXED
from agreement.families.olmo2 import WRITTEN
from agreement.small import FAR, FULL, LINEAR, SLIDING, YARN, small
from transformers import (
    Olmo3Config,
    Olmo3ForCausalLM,
    Olmo3Model,
    OlmoConfig,
    OlmoeConfig,
    OlmoeForCausalLM,
    OlmoeModel,
    OlmoForCausalLM,
    OlmoModel,
)

CLIP = 0.2
olmo = small(OlmoConfig, num_key_value_heads=2, eos_token_id=2)
olmo3 = small(Olmo3Config, num_key_value_heads=2, eos_token_id=2, sliding_window=4)
olmoe = small(
    OlmoeConfig,
    num_key_value_heads=2,
    eos_token_id=2,
    intermediate_size=12,
    num_experts=5,
    num_experts_per_tok=2,
    experts_implementation="eager",
)


def clipped(x):
    assert (x.abs() > CLIP).any()
    return x.clamp(-CLIP, CLIP)


def clipping(part):
    """Queries and keys as they are clipped behind this part of theirs."""
    return {
        f"{point}_normalized": LAYERS.output(f"self_attn.{point}_{part}", clipped)
        for point in ("q", "k")
    }


NORMED = {
    "q_normalized": LAYERS.output("self_attn.q_norm"),
    "k_normalized": LAYERS.output("self_attn.k_norm"),
}


def in_version_4(theirs, ours):
    """Rotary positions in fields of their own; the scaling is that of full layers."""
    fields, weights = written(theirs)
    rope = fields.pop("rope_parameters")
    bases = {rope[kind].pop("rope_theta") for kind in (FULL, SLIDING)}
    if bases != {500_000.0} or rope[SLIDING] != {"rope_type": "default"}:
        return 0.0  # it wrote no such models
    fields |= {"rope_theta": 500_000, "rope_scaling": rope[FULL]}
    return changed(read(fields, weights), ours)


FAMILIES = [
    Family(
        name="OLMo",
        cases={
            "plain": olmo(OlmoForCausalLM),
            "biased-tied": olmo(
                OlmoForCausalLM,
                attention_bias=True,
                tie_word_embeddings=True,
                hidden_act="gelu",
                num_key_value_heads=None,
                rope_parameters=LINEAR | FAR,
            ),
        },
        stacks={"decoder": Stack(SHARED)},
        checks={"disk of version 4": as_before},
    ),
    Family(
        name="OLMo",
        cases={
            "clipped": olmo(OlmoForCausalLM, clip_qkv=CLIP),
            "clipped-biased": olmo(OlmoForCausalLM, clip_qkv=CLIP, attention_bias=True),
        },
        stacks={"decoder": Stack(SHARED | clipping("proj"))},
    ),
    Family(name="OLMo", cases={"base": olmo(OlmoModel, clip_qkv=CLIP)}),
    Family(
        name="OLMo 3",
        cases={
            "plain": olmo3(Olmo3ForCausalLM, num_hidden_layers=4),
            "named-yarn": olmo3(
                Olmo3ForCausalLM,
                layer_types=[FULL, SLIDING, FULL],
                rope_parameters={FULL: dict(YARN), SLIDING: {"rope_type": "default"}},
            ),
            "biased-tied-bases": olmo3(
                Olmo3ForCausalLM,
                attention_bias=True,
                tie_word_embeddings=True,
                num_key_value_heads=None,
                rms_norm_eps=1e-3,
                layer_types=[SLIDING, FULL, SLIDING],
                rope_parameters={FULL: LINEAR | FAR, SLIDING: {"rope_theta": 30.0}},
            ),
        },
        stacks={"decoder": Stack(WRITTEN)},
        checks={"disk of version 4": in_version_4},
    ),
    Family(name="OLMo 3", cases={"base": olmo3(Olmo3Model)}),
    Family(
        name="OLMoE",
        cases={
            "plain": olmoe(OlmoeForCausalLM),
            "renormalised-biased-tied": olmoe(
                OlmoeForCausalLM,
                norm_topk_prob=True,
                attention_bias=True,
                tie_word_embeddings=True,
                num_key_value_heads=None,
                num_experts_per_tok=3,
                rms_norm_eps=1e-3,
                rope_parameters=FAR,
            ),
        },
        stacks={"decoder": Stack(MIXED | NORMED)},
        checks=CHECKS,
    ),
    Family(
        name="OLMoE",
        cases={"clipped": olmoe(OlmoeForCausalLM, clip_qkv=CLIP, hidden_act="gelu")},
        stacks={"decoder": Stack(MIXED | clipping("norm"))},
        checks=CHECKS,
    ),
    Family(name="OLMoE", cases={"base": olmoe(OlmoeModel)}),
]
