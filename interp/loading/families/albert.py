"""ALBERT (Lan et al. 2019, arXiv:1909.11942): BERT whose layers share their weights.

The layers form groups (usually one group of all layers), and each group has one set of weights.
Here every layer has a copy of its own, so that each can be changed by itself; the model has more
parameters and takes more memory than the file. The normed sum of embeddings has its own width and
is projected to that of the stream; the head of a masked language model returns to it.
"""

from dataclasses import replace
from typing import Any

import torch

from interp.config import MAX_LAYERS, Config, HeadConfig, NormConfig
from interp.loading.families import bert
from interp.loading.foreign_config import ForeignConfig
from interp.loading.weight import (
    Table,
    attention_output,
    linear,
    mlp,
    norm,
    prefixed,
    separate_qkv,
)

DEFAULTS: dict[str, Any] = {
    **bert.DEFAULTS,
    "vocab_size": 30000,
    "embedding_size": 128,
    "hidden_size": 4096,
    "num_hidden_groups": 1,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
    "inner_group_num": 1,
    "hidden_act": "gelu_new",
    "bos_token_id": 2,
    "eos_token_id": 3,
}
BLOCK: Table = {
    **separate_qkv("attention.query", "attention.key", "attention.value"),
    **attention_output("attention.dense"),
    **norm("ln1", "attention.LayerNorm"),
    **mlp("ffn", "ffn_output"),
    **norm("ln2", "full_layer_layer_norm"),
}


def config(fields: ForeignConfig) -> Config:
    """BERT's stack; the weights that are present determine the head."""
    width, eps = fields.integer("embedding_size"), NormConfig(eps=fields.number("layer_norm_eps"))
    head = HeadConfig(fields.activation("hidden_act"), eps, width=width)
    exits = bert.exit_settings(fields, head)
    n_ctx = fields.integer("max_position_embeddings")
    expanded = fields.replace(num_hidden_layers=len(sources(fields)))
    return bert.of_stack(expanded, exits, n_ctx, sum_width=width)


def sources(fields: ForeignConfig) -> list[str]:
    """For each layer, the prefix of the weights that it has a copy of.

    Raises:
        ModelLoadError: there are more than :data:`MAX_LAYERS` layers.
    """
    n_layers, n_groups = fields.integer("num_hidden_layers"), fields.integer("num_hidden_groups")
    n_inner = fields.integer("inner_group_num")
    if n_layers * n_inner > MAX_LAYERS:
        expected = f"at most {MAX_LAYERS} layers, {n_layers} times this number"
        raise fields.unsupported("inner_group_num", n_inner, expected)
    return [
        f"encoder.albert_layer_groups.{int(layer / (n_layers / n_groups))}.albert_layers.{inner}."
        for layer in range(n_layers)
        for inner in range(n_inner)
    ]


def weights(config: Config, fields: ForeignConfig) -> Table:
    """The weights of a group for each of its layers; the rest as in BERT, with other names."""
    projection = "encoder.embed_projection"
    table = bert.embeddings(config) | linear(
        f"{projection}.weight", f"{projection}.bias", "encoder.embedding_hidden_mapping_in"
    )
    # Copies: a tensor that is read twice from a file may be the same memory both times.
    block = {name: weight.map(torch.clone) for name, weight in BLOCK.items()}
    for layer, source in enumerate(sources(fields)):
        table |= prefixed(f"encoder.blocks.{layer}.", block, source)
    return table | bert.pooler(config) | bert.exit_weights(config, fields)


FAMILIES = [
    replace(
        bert.BERT,
        name="ALBERT",
        model_types=("albert",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        unread=(
            *("classifier_dropout_prob", "down_scale_factor", "gap_size", "layers_to_keep"),
            *("net_structure_type", "num_memory_blocks"),
        ),
        renames=(
            (r"^albert\.", ""),
            (r"^pooler\.(weight|bias)$", r"pooler.dense.\1"),
            (r"^predictions\.(dense|LayerNorm)\.", rf"{bert.MASKED}.transform.\1."),
            (r"^predictions\.", f"{bert.MASKED}."),
            (r"^sop_classifier\.classifier\.", f"{bert.NEXT}."),
            *bert.OLD_NORMS,
        ),
        shares_layers=True,
    )
]
