"""Mixtral, Phi-3.5-MoE, Qwen2-MoE and Qwen3-MoE: experts in all or some layers, two routings, a
shared expert."""

import torch
from agreement.comparing import Family, Stack, called, if_there, off
from agreement.disk import as_before, published
from agreement.families.llama import GROUPED, LAYERS, SHARED
from agreement.small import small
from transformers import (
    MixtralConfig,
    MixtralForCausalLM,
    MixtralModel,
    PhimoeConfig,
    PhimoeForCausalLM,
    PhimoeModel,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    Qwen2MoeModel,
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
phi = small(PhimoeConfig, **TWO_OF_FIVE, num_local_experts=5, router_jitter_noise=0.3)
qwen2 = small(
    Qwen2MoeConfig,
    **TWO_OF_FIVE,
    num_experts=5,
    moe_intermediate_size=12,
    shared_expert_intermediate_size=16,
)


def mixing(model):
    """The layers that have experts."""
    return [n for n, layer in enumerate(model.model.layers) if hasattr(layer.mlp, "experts")]


def router_of(mlp):
    return mlp.router if hasattr(mlp, "router") else mlp.gate


def tokens():
    return torch.randint(3, 50, (2, 9), generator=torch.Generator().manual_seed(7))


@torch.no_grad()
def shares(theirs, ours):
    """The weight of each expert, zero where it is not chosen."""
    ids, routed = tokens(), {}
    handles = [
        router_of(theirs.model.layers[layer].mlp).register_forward_hook(
            lambda _, inputs, out, layer=layer: routed.update({layer: out})
        )
        for layer in mixing(theirs)
    ]
    called(theirs, [ids])
    for handle in handles:
        handle.remove()
    cache = interp.run(ours, ids, record="expert_weights").cache
    errors = []
    for layer, (logits, weights, chosen) in routed.items():
        dense = torch.zeros_like(logits).scatter(-1, chosen, weights)
        errors.append(off(cache["expert_weights", layer], dense.view(*ids.shape, -1)))
    return max(errors)


@torch.no_grad()
def neurons(theirs, ours):
    """What the neurons of every expert compute, from their matrices and the input of our MLP."""
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
MIXED = PLAIN | {"router": LAYERS.output("mlp.gate"), "mlp_out": LAYERS.output("mlp")}
SOME_PLAIN = MIXED | {
    "router": if_there(MIXED["router"]),
    "gate": if_there(LAYERS.output("mlp.gate_proj")),
    "pre": if_there(LAYERS.output("mlp.up_proj")),
}
SPARSE = MIXED | {"router": LAYERS.output("mlp.router")}
SHARED_EXPERT = SOME_PLAIN | {
    "gate": if_there(LAYERS.output("mlp.shared_expert.gate_proj"), LAYERS.output("mlp.gate_proj")),
    "pre": if_there(LAYERS.output("mlp.shared_expert.up_proj"), LAYERS.output("mlp.up_proj")),
    "post": if_there(LAYERS.input("mlp.shared_expert.down_proj"), LAYERS.input("mlp.down_proj")),
    "shared_weight": if_there(LAYERS.output("mlp.shared_expert_gate", torch.sigmoid)),
}
SCALED = {
    "rope_type": "longrope",
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "short_factor": [1.0, 1.3, 2.0, 2.5],
    "long_factor": [1.0, 3.0, 7.0, 9.0],
    "short_mscale": 1.2,
    "long_mscale": 1.3,
}
CHECKS = {"disk of version 4": as_before, "expert_weights": shares, "expert_post": neurons}

# As of Phi-3.5-MoE.
PUBLISHED = {
    "architectures": ["PhiMoEForCausalLM"],
    "attention_bias": True,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_dropout": 0.0,
    "hidden_size": 24,
    "initializer_range": 0.02,
    "input_jitter_noise": 0.01,
    "intermediate_size": 20,
    "lm_head_bias": True,
    "max_position_embeddings": 64,
    "model_type": "phimoe",
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "num_local_experts": 5,
    "original_max_position_embeddings": 32,
    "output_router_logits": False,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "long_factor": [1.5, 3.0, 7.0],
        "long_mscale": 1.2,
        "original_max_position_embeddings": 32,
        "short_factor": [1.0, 1.3, 2.0],
        "short_mscale": 1.2,
        "type": "longrope",
    },
    "rope_theta": 10000.0,
    "router_aux_loss_coef": 0.0,
    "router_jitter_noise": 0.01,
    "sliding_window": 64,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 50,
}
OLD_NAMES = {"\\.mlp\\.router\\.": ".block_sparse_moe.gate."}
OTHERS = ("architectures", "model_type", "torch_dtype")
published_phi = small(
    PhimoeConfig,
    {name: value for name, value in PUBLISHED.items() if name not in OTHERS},
    attn_implementation="eager",
    experts_implementation="eager",
)

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
    Family(
        name="Phi-3.5-MoE",
        cases={
            "plain": phi(PhimoeForCausalLM),
            "biased-window": phi(
                PhimoeForCausalLM,
                attention_bias=True,
                lm_head_bias=True,
                sliding_window=4,
                router_jitter_noise=0.01,
                rms_norm_eps=1e-3,
            ),
            "scaled-tied": phi(PhimoeForCausalLM, tie_word_embeddings=True, rope_parameters=SCALED),
        },
        stacks={"decoder": Stack(SPARSE)},
        checks=CHECKS,
    ),
    Family(
        name="Phi-3.5-MoE",
        cases={"published": published_phi(PhimoeForCausalLM)},
        checks={"published": published(PUBLISHED, OLD_NAMES)},
    ),
    Family(name="Phi-3.5-MoE", cases={"base": phi(PhimoeModel)}),
    Family(
        name="Qwen2-MoE",
        cases={
            "plain": qwen2(Qwen2MoeForCausalLM),
            "renormalised-windows": qwen2(
                Qwen2MoeForCausalLM,
                norm_topk_prob=True,
                use_sliding_window=True,
                sliding_window=4,
                qkv_bias=False,
                num_experts_per_tok=3,
            ),
            "some-plain-tied": qwen2(
                Qwen2MoeForCausalLM,
                num_hidden_layers=4,
                decoder_sparse_step=2,
                mlp_only_layers=[3],
                tie_word_embeddings=True,
                rms_norm_eps=1e-3,
                hidden_act="relu",
            ),
        },
        stacks={"decoder": Stack(SHARED_EXPERT)},
        checks=CHECKS,
    ),
    Family(
        name="Qwen2-MoE",
        cases={
            "no-experts": qwen2(Qwen2MoeForCausalLM, mlp_only_layers=[0, 1, 2]),
            "base": qwen2(Qwen2MoeModel, mlp_only_layers=[1]),
        },
    ),
]
