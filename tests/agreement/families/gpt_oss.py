"""GPT-OSS: sinks, windows in some layers, experts with biases."""

import torch
from agreement.comparing import Family, Stack, called, off
from agreement.disk import as_before
from agreement.exact import watched
from agreement.families.llama import GROUPED, LAYERS
from agreement.families.mixtures import MIXED, tokens
from agreement.small import FAR, FULL, LINEAR, SLIDING, small
from transformers import GptOssConfig, GptOssForCausalLM, GptOssModel

import interp

oss = small(
    GptOssConfig,
    **GROUPED,
    num_local_experts=5,
    num_experts_per_tok=2,
    experts_implementation="eager",
    sliding_window=4,
    swiglu_limit=0.8,
)
OWN = {name: read for name, read in MIXED.items() if name != "router"}
OWN["router"] = LAYERS.output("mlp.router")


@torch.no_grad()
def neurons(theirs, ours):
    """What the neurons of every expert give, from their matrices and what our MLP reads."""
    cache, errors = interp.run(ours, tokens(), record="all").cache, []
    for layer, block in enumerate(theirs.model.layers):
        experts, x = block.mlp.experts, cache["normalized", layer, "ln2"]
        joint = torch.einsum("bpd,edf->bpef", x, experts.gate_up_proj) + experts.gate_up_proj_bias
        expected = {
            "gate": joint[..., ::2],
            "pre": joint[..., 1::2],
            "post": experts._apply_gate(joint),
        }
        for name, tensor in expected.items():
            errors.append(off(cache[f"expert_{name}", layer], tensor))
        assert (joint[..., ::2] > experts.limit).any()
        assert (joint[..., 1::2].abs() > experts.limit).any()
    return max(errors)


@torch.no_grad()
def shares(theirs, ours):
    """The weight of each expert, zero where it is not selected."""
    ids, errors = tokens(), []
    cache = interp.run(ours, ids, record="expert_weights").cache
    with watched(theirs) as seen:
        called(theirs, [ids])
    for layer in range(len(theirs.model.layers)):
        logits = seen.outputs[f"model.layers.{layer}.mlp.router"]
        largest, selected = logits.topk(theirs.config.num_experts_per_tok, -1)
        dense = torch.zeros_like(logits).scatter(-1, selected, largest.softmax(-1))
        errors.append(off(cache["expert_weights", layer], dense.view(*ids.shape, -1)))
    return max(errors)


FAMILIES = [
    Family(
        name="GPT-OSS",
        cases={
            "plain": oss(GptOssForCausalLM),
            "unbiased-tied": oss(
                GptOssForCausalLM,
                attention_bias=False,
                tie_word_embeddings=True,
                num_experts_per_tok=5,
                num_key_value_heads=4,
                rms_norm_eps=1e-3,
                layer_types=[FULL, FULL, SLIDING],
                rope_parameters=LINEAR | {"rope_theta": 77.0},
            ),
            "one-expert": oss(GptOssForCausalLM, num_experts_per_tok=1, layer_types=[FULL] * 3),
        },
        stacks={"decoder": Stack(OWN, shifted_scores=True, sinks=1)},
        checks={"disk of version 4": as_before, "expert_post": neurons, "expert_weights": shares},
    ),
    Family(
        name="GPT-OSS",
        cases={
            "base": oss(GptOssModel),
            "not-scaled": oss(GptOssModel, rope_parameters=FAR | {"rope_type": "default"}),
        },
    ),
]
