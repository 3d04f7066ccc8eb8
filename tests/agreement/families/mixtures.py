"""Mixtral and Qwen3-MoE: experts in all layers or in some, their weights renormalised or not."""

import torch
from agreement.comparing import Family, Stack, called, off
from agreement.disk import from_disk
from agreement.families.llama import SHARED
from transformers import (
    MixtralConfig,
    MixtralForCausalLM,
    MixtralModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    Qwen3MoeModel,
)

import interp


def config(kind, **rest):
    told = {
        "vocab_size": 50,
        "hidden_size": 24,
        "intermediate_size": 20,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 32,
        "num_experts_per_tok": 2,
        "attn_implementation": "eager",
        "experts_implementation": "eager",
    }
    return kind(**(told | rest))


def mixtral(**rest):
    return config(MixtralConfig, **({"num_local_experts": 5} | rest))


def qwen(**rest):
    return config(Qwen3MoeConfig, **({"num_experts": 5, "moe_intermediate_size": 12} | rest))


def gave(name):
    """What a module of some layers gave, ``[batch pos …]``; None in a layer without it."""

    def read(seen, layer):
        found = seen.gave.get(f"model.layers.{layer}.{name}")
        rows = seen.gave[f"model.layers.{layer}.input_layernorm"].shape[:2]
        return None if found is None else found.reshape(*rows, *found.shape[-1:])

    return read


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
    called(FAMILIES[0], theirs, [ids])
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
MIXED = PLAIN | {"router": gave("mlp.gate"), "mlp_out": gave("mlp")}
SOME_PLAIN = MIXED | {"gate": gave("mlp.gate_proj"), "pre": gave("mlp.up_proj")}
CHECKS = {"from disk": from_disk, "expert_weights": shares, "expert_post": neurons}

FAMILIES = [
    Family(
        name="Mixtral",
        cases={
            "plain": lambda: MixtralForCausalLM(mixtral()),
            "window-tied": lambda: MixtralForCausalLM(
                mixtral(
                    sliding_window=4,
                    tie_word_embeddings=True,
                    num_experts_per_tok=1,
                    rms_norm_eps=1e-3,
                )
            ),
            "all-chosen": lambda: MixtralForCausalLM(
                mixtral(
                    num_experts_per_tok=5,
                    num_key_value_heads=4,
                    head_dim=None,
                    hidden_act="gelu",
                    router_jitter_noise=0.1,
                    rope_parameters={"rope_theta": 77.0},
                )
            ),
        },
        stacks={"decoder": Stack("model.layers", MIXED)},
        checks=CHECKS,
    ),
    Family(name="Mixtral", cases={"base": lambda: MixtralModel(mixtral())}, stacks={}),
    Family(
        name="Qwen3-MoE",
        cases={
            "plain": lambda: Qwen3MoeForCausalLM(qwen()),
            "renormalised-window": lambda: Qwen3MoeForCausalLM(
                qwen(
                    norm_topk_prob=True,
                    use_sliding_window=True,
                    sliding_window=4,
                    attention_bias=True,
                    num_experts_per_tok=3,
                )
            ),
            "some-plain-tied": lambda: Qwen3MoeForCausalLM(
                qwen(
                    num_hidden_layers=4,
                    decoder_sparse_step=2,
                    mlp_only_layers=[3],
                    tie_word_embeddings=True,
                    rms_norm_eps=1e-3,
                    hidden_act="relu",
                )
            ),
        },
        stacks={"decoder": Stack("model.layers", SOME_PLAIN)},
        checks=CHECKS,
    ),
    Family(
        name="Qwen3-MoE",
        cases={
            "no-experts": lambda: Qwen3MoeForCausalLM(qwen(mlp_only_layers=[0, 1, 2])),
            "base": lambda: Qwen3MoeModel(qwen(mlp_only_layers=[1])),
        },
        stacks={},
    ),
]
