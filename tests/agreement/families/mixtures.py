"""Mixtral and Qwen3-MoE: experts in all layers or in some, their weights renormalised or not."""

import torch
from agreement.comparing import Family, Stack, called, if_there, off
from agreement.disk import as_before
from agreement.families.llama import GROUPED, LAYERS, SHARED
from agreement.small import small
from transformers import (
    MixtralConfig,
    MixtralForCausalLM,
    MixtralModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    Qwen3MoeModel,
)

import interp

TWO_OF_FIVE = {
    **GROUPED,
    "intermediate_size": 20,
    "num_experts_per_tok": 2,
    "experts_implementation": "eager",
}
mixtral = small(MixtralConfig, **TWO_OF_FIVE, num_local_experts=5)
qwen = small(Qwen3MoeConfig, **TWO_OF_FIVE, num_experts=5, moe_intermediate_size=12)


def mixing(model):
    """The layers that have experts."""
    return [n for n, layer in enumerate(model.model.layers) if hasattr(layer.mlp, "experts")]


def tokens():
    return torch.randint(3, 50, (2, 9), generator=torch.Generator().manual_seed(7))


@torch.no_grad()
def shares(theirs, ours):
    """The weight of each expert, zero where it is not chosen."""
    ids, told = tokens(), {}
    handles = [
        theirs.model.layers[layer].mlp.gate.register_forward_hook(
            lambda _, given, out, layer=layer: told.update({layer: out})
        )
        for layer in mixing(theirs)
    ]
    called(theirs, [ids])
    for handle in handles:
        handle.remove()
    cache = interp.run(ours, ids, record="expert_weights").cache
    errors = []
    for layer, (logits, weights, chosen) in told.items():
        dense = torch.zeros_like(logits).scatter(-1, chosen, weights)
        errors.append(off(cache["expert_weights", layer], dense.view(*ids.shape, -1)))
    return max(errors)


@torch.no_grad()
def neurons(theirs, ours):
    """What the neurons of every expert say, from their matrices and what our MLP is given."""
    cache, errors = interp.run(ours, tokens(), record="all").cache, []
    for layer in mixing(theirs):
        experts = theirs.model.layers[layer].mlp.experts
        x = cache["normalized", layer, "ln2"]
        gate, pre = torch.einsum("bpd,efd->bpef", x, experts.gate_up_proj).chunk(2, -1)
        post = experts.act_fn(gate) * pre
        for name, expected in (("gate", gate), ("pre", pre), ("post", post)):
            errors.append(off(cache[f"expert_{name}", layer], expected))
    return max(errors)


PLAIN = {name: read for name, read in SHARED.items() if name not in ("gate", "pre", "post")}
MIXED = PLAIN | {"router": LAYERS.gave("mlp.gate"), "mlp_out": LAYERS.gave("mlp")}
SOME_PLAIN = MIXED | {
    "router": if_there(MIXED["router"]),
    "gate": if_there(LAYERS.gave("mlp.gate_proj")),
    "pre": if_there(LAYERS.gave("mlp.up_proj")),
}
CHECKS = {"disk of version 4": as_before, "expert_weights": shares, "expert_post": neurons}

FAMILIES = [
    Family(
        name="Mixtral",
        cases={
            "plain": mixtral(MixtralForCausalLM),
            "window-tied": mixtral(
                MixtralForCausalLM,
                sliding_window=4,
                tie_word_embeddings=True,
                num_experts_per_tok=1,
                rms_norm_eps=1e-3,
            ),
            "all-chosen": mixtral(
                MixtralForCausalLM,
                num_experts_per_tok=5,
                num_key_value_heads=4,
                head_dim=None,
                hidden_act="gelu",
                router_jitter_noise=0.1,
                rope_parameters={"rope_theta": 77.0},
            ),
        },
        stacks={"decoder": Stack(MIXED)},
        checks=CHECKS,
    ),
    Family(name="Mixtral", cases={"base": mixtral(MixtralModel)}),
    Family(
        name="Qwen3-MoE",
        cases={
            "plain": qwen(Qwen3MoeForCausalLM),
            "renormalised-window": qwen(
                Qwen3MoeForCausalLM,
                norm_topk_prob=True,
                use_sliding_window=True,
                sliding_window=4,
                attention_bias=True,
                num_experts_per_tok=3,
            ),
            "some-plain-tied": qwen(
                Qwen3MoeForCausalLM,
                num_hidden_layers=4,
                decoder_sparse_step=2,
                mlp_only_layers=[3],
                tie_word_embeddings=True,
                rms_norm_eps=1e-3,
                hidden_act="relu",
            ),
        },
        stacks={"decoder": Stack(SOME_PLAIN)},
        checks=CHECKS,
    ),
    Family(
        name="Qwen3-MoE",
        cases={
            "no-experts": qwen(Qwen3MoeForCausalLM, mlp_only_layers=[0, 1, 2]),
            "base": qwen(Qwen3MoeModel, mlp_only_layers=[1]),
        },
    ),
]
