"""MPT (MosaicML 2023): GPT-2 with ALiBi instead of learned positions, and without any biases.

The object ``attn_config`` has the settings of attention: ``clip_qkv`` clips queries, keys and
values. Settings that ``transformers`` ignores, although the model's own code reads them, are
refused unless they describe what ``transformers`` computes.
"""

from collections.abc import Mapping
from typing import Any

from interp.config import (
    AttentionConfig,
    Config,
    MLPConfig,
    NormConfig,
    PositionsConfig,
    StackConfig,
)
from interp.loading.family import EVERY_FAMILY, Family
from interp.loading.foreign_config import ForeignConfig
from interp.loading.settings import biases, plain_exit
from interp.loading.weight import (
    Table,
    attention_output,
    each_layer,
    from_key,
    fused_qkv,
    mlp,
    norm,
    prefixed,
    unembedding,
)

DEFAULTS: dict[str, Any] = {
    "vocab_size": 50368,
    "d_model": 2048,
    "n_heads": 16,
    "n_layers": 24,
    "max_seq_len": 2048,
    "layer_norm_epsilon": 1e-5,
}
EXPANSION = 4
"""Ratio of the width of the MLP to that of the stream."""
OPTIONS: dict[str, tuple[object, ...]] = {
    "expansion_ratio": (EXPANSION,),
    "no_bias": (True,),
    "norm_type": ("low_precision_layernorm", "layernorm"),
    "logit_scale": (),
}
"""Fields that ``transformers`` ignores, and the values that describe what it computes."""
ATTENTION_OPTIONS: dict[str, tuple[object, ...]] = {
    "alibi": (True,),
    "alibi_bias_max": (8,),
    "attn_type": ("multihead_attention",),
    "attn_uses_sequence_id": (False,),
    "prefix_lm": (False,),
    "qk_ln": (False,),
}
"""The same for ``attn_config``."""


def config(fields: ForeignConfig) -> Config:
    """The slopes of ALiBi are those of BLOOM."""
    for name, values in OPTIONS.items():
        fields.allow_only_computed(name, values)
    d_model, n_heads = fields.integer("d_model"), fields.integer("n_heads")
    return Config(
        d_model=d_model,
        d_vocab=fields.integer("vocab_size"),
        n_ctx=fields.integer("max_seq_len"),
        **plain_exit(fields),
        decoder=StackConfig(
            n_layers=fields.integer("n_layers"),
            attention=AttentionConfig(
                n_heads,
                d_model // n_heads,
                **biases(qkv=False, output=False),
                **scale_and_clip(fields),
            ),
            mlp=MLPConfig(EXPANSION * d_model, bias_in=False, bias_out=False),
            norm=NormConfig(bias=False, eps=fields.number("layer_norm_epsilon")),
            positions=PositionsConfig(kind="alibi"),
        ),
    )


def scale_and_clip(fields: ForeignConfig) -> dict[str, Any]:
    """The divisor of the scores, and the bound to which queries, keys and values are clipped.

    Raises:
        ModelLoadError: another option of ``attn_config`` has a value that is not supported.
    """
    options = fields.get("attn_config", {})
    if not isinstance(options, Mapping):
        raise fields.unsupported("attn_config", options, "an object")
    section = ForeignConfig(f"{fields.family}: attn_config", options, {})
    for name, values in ATTENTION_OPTIONS.items():
        section.allow_only_computed(name, values)
    factor = section.get("softmax_scale")
    return {
        "scale": None if factor is None else 1 / section.number("softmax_scale"),
        "clip": section.number("clip_qkv") if section.get("clip_qkv") else None,
    }


def weights(config: Config, fields: ForeignConfig) -> Table:
    """Queries, keys and values are one matrix, in this order."""
    block = {
        **norm("ln1", "norm_1", bias=False),
        **fused_qkv(from_key("attn.Wqkv.weight"), None, 0, 0),
        **attention_output("attn.out_proj", biased=False),
        **norm("ln2", "norm_2", bias=False),
        **mlp("ffn.up_proj", "ffn.down_proj", biased=False),
    }
    table = {
        "weight_e": from_key("wte.weight"),
        **each_layer(config.stacks["decoder"].n_layers, block, "blocks.{}."),
        **norm("final_norm", "norm_f", bias=False),
    }
    return prefixed("decoder.", table) | unembedding(fields.unembedding)


FAMILIES = [
    Family(
        name="MPT",
        model_types=("mpt",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        fields=("attn_config", *OPTIONS),
        objects={
            "attn_config": (
                *ATTENTION_OPTIONS,
                *("attn_impl", "clip_qkv", "softmax_scale", "verbose", *EVERY_FAMILY.split()),
            )
        },
        unread=(
            *("emb_pdrop", "embedding_fraction", "init_config", "init_device", "learned_pos_emb"),
            *("tokenizer_name", "verbose"),
        ),
        aliases={
            "hidden_size": "d_model",
            "num_attention_heads": "n_heads",
            "num_hidden_layers": "n_layers",
        },
        renames=((r"^transformer\.", ""),),
        embedding="wte.weight",
    )
]
