"""Mixtral (Jiang et al. 2024, arXiv:2401.04088): Mistral with a mixture of experts as its MLP.

The router takes a softmax over all experts, keeps the highest few and divides them by their sum.
Files hold each expert's matrices by themselves, a live model holds those of all experts as one.
"""

from typing import Any

from interp.config import Config, ExpertsConfig, MLPConfig
from interp.loading.families import llama
from interp.loading.family import Family
from interp.loading.foreign_config import Raw
from interp.loading.sliding_window import window
from interp.loading.weight import Table, at, norm, stacked

DEFAULTS: dict[str, Any] = {
    **llama.DEFAULTS,
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1_000_000.0,
    "sliding_window": None,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
GATE, UP, DOWN = "w1", "w3", "w2"


def config(raw: Raw) -> Config:
    """Experts in every layer, and perhaps a window."""
    raw.only("layer_types")
    mlp = mixture(raw, raw.whole("intermediate_size"), renormalised=True)
    return llama.of_parts(raw, llama.attention(raw, window=window(raw)), mlp)


def mixture(raw: Raw, d_mlp: int, *, renormalised: bool) -> MLPConfig:
    """So many experts, each a gated MLP without biases."""
    n, chosen = raw.whole("num_local_experts"), raw.whole("num_experts_per_tok")
    return MLPConfig(
        d_mlp,
        raw.activation("hidden_act"),
        gated=True,
        bias_in=False,
        bias_out=False,
        experts=ExpertsConfig(n, chosen, renormalised),
    )


def weights(config: Config, raw: Raw) -> Table:
    """The same block in every layer."""
    stack = config.stacks["decoder"]
    if stack.mlp is None:
        raise TypeError("weights: this stack has no experts.")
    block = {
        **norm("ln1", "input_layernorm", bias=False),
        **llama.self_attention(stack.attention),
        **norm("ln2", "post_attention_layernorm", bias=False),
        **experts(raw, stack.mlp, (GATE, UP, DOWN)),
    }
    return llama.decoder(config, raw, block)


def experts(raw: Raw, mlp: MLPConfig, names: tuple[str, str, str]) -> Table:
    """The router, and the experts' matrices however they are stored.

    Args:
        raw: knows which weights there are.
        mlp: of how many experts.
        names: of an expert's gate, in and out, where they are stored by themselves.
    """
    table = {"mlp.weight_router": at("mlp.gate.weight")}
    if any(key.endswith("mlp.experts.gate_up_proj") for key in raw.keys):
        both = at("mlp.experts.gate_up_proj")
        return table | {
            "mlp.weight_gate": both.then(lambda x: x[:, : mlp.d_mlp]),
            "mlp.weight_in": both.then(lambda x: x[:, mlp.d_mlp :]),
            "mlp.weight_out": at("mlp.experts.down_proj"),
        }
    numbers = range(mlp.experts.n_experts if mlp.experts else 0)
    for own, name in zip(("gate", "in", "out"), names, strict=True):
        each = (at(f"mlp.experts.{number}.{name}.weight") for number in numbers)
        table[f"mlp.weight_{own}"] = stacked(*each)
    return table


FAMILIES = [
    Family(
        name="Mixtral",
        model_types=("mixtral",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        aliases={"num_experts": "num_local_experts"},
        names=(llama.PREFIX, (r"\.block_sparse_moe\.", ".mlp.")),
        ignored=llama.IGNORED,
        embedding="embed_tokens.weight",
        ties=False,
    ),
]
