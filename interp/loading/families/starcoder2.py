"""StarCoder2 (Lozhkov et al. 2024, arXiv:2402.19173): rotary positions, LayerNorm, a plain MLP.

``use_bias`` sets all biases of attention and MLP. If ``sliding_window`` is set, all layers have a
window.
"""

from dataclasses import replace
from typing import Any

from interp.config import Config, MLPConfig, NormConfig
from interp.loading.families import llama
from interp.loading.foreign_config import ForeignConfig
from interp.loading.sliding_window import window
from interp.loading.weight import Table, mlp

DEFAULTS: dict[str, Any] = {
    "vocab_size": 49152,
    "hidden_size": 3072,
    "intermediate_size": 12288,
    "num_hidden_layers": 30,
    "num_attention_heads": 24,
    "num_key_value_heads": 2,
    "hidden_act": "gelu_pytorch_tanh",
    "max_position_embeddings": 4096,
    "norm_epsilon": 1e-5,
    "rope_theta": 10_000.0,
    "sliding_window": None,
    "use_bias": True,
}


def config(fields: ForeignConfig) -> Config:
    """LayerNorm has a bias regardless of ``use_bias``."""
    fields.allow_only("mlp_type", ("default",))
    fields.allow_only("norm_type", ("layer_norm",))
    biased = fields.flag("use_bias")
    width, act = fields.integer("intermediate_size"), fields.activation("hidden_act")
    return llama.of_parts(
        fields,
        llama.grouped_attention(fields, biased=biased, window=window(fields)),
        MLPConfig(width, act, bias_in=biased, bias_out=biased),
        norm=NormConfig(eps=fields.number("norm_epsilon")),
    )


def weights(config: Config, fields: ForeignConfig) -> Table:
    """All projections are separate matrices."""
    stack = config.stacks["decoder"]
    block = llama.attention_and_norms(stack)
    block |= mlp("mlp.c_fc", "mlp.c_proj", biased=stack.attention.bias_o)
    return llama.decoder(config, fields, block)


FAMILIES = [
    replace(
        llama.LLAMA,
        name="StarCoder2",
        model_types=("starcoder2",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        fields=(*llama.LLAMA.fields, "mlp_type", "norm_type"),
        unread=("embedding_dropout", "residual_dropout"),
        tied=True,
    )
]
