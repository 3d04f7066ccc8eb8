"""Mixtral (Jiang et al. 2024, arXiv:2401.04088): Mistral with a mixture of experts as its MLP.

The router's softmax is taken over all experts; the weights of the selected ones are divided by
their sum. Files store the matrices of each expert separately, live models those of all experts in
one tensor.
"""

from dataclasses import replace
from typing import Any

from interp.config import Config, ExpertsConfig, MLPConfig
from interp.loading.families import llama, mistral
from interp.loading.foreign_config import ForeignConfig
from interp.loading.sliding_window import window
from interp.loading.weight import Table, from_key, stacked

DEFAULTS: dict[str, Any] = {
    **mistral.DEFAULTS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1_000_000.0,
    "sliding_window": None,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
GATE, UP, DOWN = "w1", "w3", "w2"


def config(fields: ForeignConfig) -> Config:
    """Experts in every layer; a window if ``sliding_window`` is set."""
    attention = llama.grouped_attention(fields, window=window(fields))
    mlp = mixture(fields, fields.integer("intermediate_size"), renormalised=True)
    return llama.of_parts(fields, attention, mlp)


def mixture(fields: ForeignConfig, d_mlp: int, *, renormalised: bool) -> MLPConfig:
    """A mixture of gated MLPs without biases, each of width ``d_mlp``."""
    n_experts = fields.integer("num_local_experts")
    return MLPConfig(
        d_mlp,
        fields.activation("hidden_act"),
        gated=True,
        bias_in=False,
        bias_out=False,
        experts=ExpertsConfig(n_experts, fields.integer("num_experts_per_tok"), renormalised),
    )


def weights(config: Config, fields: ForeignConfig) -> Table:
    """The same block in every layer."""
    stack = config.stacks["decoder"]
    if stack.mlp is None:
        raise TypeError("weights: this stack has no experts.")
    block = {
        **llama.attention_and_norms(stack),
        **experts(fields, stack.mlp, (GATE, UP, DOWN)),
    }
    return llama.decoder(config, fields, block)


def experts(fields: ForeignConfig, mlp: MLPConfig, names: tuple[str, str, str]) -> Table:
    """The router and the matrices of the experts, stored separately or in one tensor.

    Args:
        fields: the foreign configuration; its weight names determine the form.
        mlp: the mixture.
        names: names of an expert's W_gate, W_in and W_out, if experts are stored separately.
    """
    table = {"mlp.weight_router": from_key("mlp.gate.weight")}
    if any(name.endswith("mlp.experts.gate_up_proj") for name in fields.weight_names):
        gate_and_in = from_key("mlp.experts.gate_up_proj")
        return table | {
            "mlp.weight_gate": gate_and_in.map(lambda x: x[:, : mlp.d_mlp]),
            "mlp.weight_in": gate_and_in.map(lambda x: x[:, mlp.d_mlp :]),
            "mlp.weight_out": from_key("mlp.experts.down_proj"),
        }
    numbers = range(mlp.experts.n_experts if mlp.experts else 0)
    for part, name in zip(("gate", "in", "out"), names, strict=True):
        each = (from_key(f"mlp.experts.{number}.{name}.weight") for number in numbers)
        table[f"mlp.weight_{part}"] = stacked(*each)
    return table


FAMILIES = [
    replace(
        llama.LLAMA,
        name="Mixtral",
        model_types=("mixtral",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        aliases={"num_experts": "num_local_experts"},
        renames=(*llama.LLAMA.renames, (r"\.block_sparse_moe\.", ".mlp.")),
    )
]
