"""GLM-4-9B (GLM Team 2024, arXiv:2406.12793) and GLM-4-0414: ``glm`` and ``glm4``.

Llama with rotary positions in layout ``interleaved``, by default for half of each head; biased
queries, keys and values; and fused matrices W_gate and W_in. GLM-4-0414 also norms the outputs of
attention and MLP.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from interp.config import Config
from interp.loading.families import llama
from interp.loading.foreign_config import ForeignConfig
from interp.loading.rotary import rotary
from interp.loading.weight import Table, from_key, gate_and_in, norm

DEFAULTS: dict[str, Any] = {
    **llama.DEFAULTS,
    "vocab_size": 151552,
    "intermediate_size": 13696,
    "num_hidden_layers": 40,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 0.00000015625,
    "partial_rotary_factor": 0.5,
    "attention_bias": True,
    "eos_token_id": [151329, 151336, 151338],
}
NORMS = {"ln1": "input_layernorm", "ln2": "post_attention_layernorm"}
SANDWICH = {"ln1_post": "post_self_attn_layernorm", "ln2_post": "post_mlp_layernorm"}


def config(fields: ForeignConfig, *, placement: str) -> Config:
    """``attention_bias`` sets the biases of queries, keys and values."""
    return llama.of_parts(
        fields,
        llama.grouped_attention(fields, biased=fields.flag("attention_bias"), bias_o=False),
        llama.gated_mlp(fields),
        norm=llama.rms_norm(fields, placement=placement),
        positions=replace(rotary(fields), layout="interleaved"),
    )


def weights(config: Config, fields: ForeignConfig) -> Table:
    """W_gate and W_in are one matrix."""
    stack = config.stacks["decoder"]
    block = llama.self_attention(stack.attention)
    block |= {
        **gate_and_in("mlp.gate_up_proj", biased=False),
        "mlp.weight_out": from_key("mlp.down_proj.weight"),
    }
    names = NORMS | (SANDWICH if stack.norm.placement == "sandwich" else {})
    for name, source in names.items():
        block |= norm(name, source, bias=False)
    return llama.decoder(config, fields, block)


FAMILIES = [
    replace(
        llama.LLAMA,
        name=name,
        model_types=(model_type,),
        config=partial(config, placement=placement),
        weights=weights,
        defaults=DEFAULTS,
    )
    for name, model_type, placement in (
        ("GLM-4", "glm", "pre"),
        ("GLM-4-0414", "glm4", "sandwich"),
    )
]
