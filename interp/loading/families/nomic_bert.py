"""Nomic BERT (Nussbaum et al. 2024, arXiv:2402.01613), as in nomic-embed-text.

BERT with rotary positions, gated MLPs and no biases except those of norms. Published files have
the names of fields and weights of GPT-2-like code, with queries, keys and values in one matrix.
As in ``transformers``, ``rotary_scaling_factor`` is not applied to texts beyond the trained length.
"""

from dataclasses import replace
from typing import Any

from interp.config import (
    AttentionConfig,
    Config,
    EmbeddingConfig,
    HeadConfig,
    MLPConfig,
    NormConfig,
    StackConfig,
)
from interp.loading.families import bert, llama
from interp.loading.foreign_config import ForeignConfig
from interp.loading.rotary import FIELDS as ROTARY
from interp.loading.rotary import context_length
from interp.loading.settings import biases
from interp.loading.weight import (
    Table,
    attention_output,
    each_layer,
    from_key,
    norm,
    prefixed,
    separate_qkv,
)

DEFAULTS: dict[str, Any] = {
    **bert.DEFAULTS,
    "vocab_size": 30528,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rope_theta": 1000.0,
}
JOINT = "attn.Wqkv"
OF_PUBLISHED: dict[str, tuple[object, ...]] = {
    "activation_function": ("swiglu",),
    "rotary_emb_fraction": (1,),
    "scale_attn_weights": (True,),
    **dict.fromkeys(
        (
            *("causal", "mlp_fc1_bias", "mlp_fc2_bias", "parallel_block", "prenorm"),
            *("qkv_proj_bias", "rotary_emb_interleaved", "rotary_emb_scale_base"),
            *("scale_attn_by_inverse_layer_idx", "use_rms_norm"),
        ),
        (False,),
    ),
}
"""Fields of published files, and the values that are supported."""


def config(fields: ForeignConfig) -> Config:
    """The stack; the weights that are present determine the head."""
    for name, values in OF_PUBLISHED.items():
        fields.allow_only(name, values)
    d_model, n_heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    d_head, activation = fields.get("head_dim", d_model // n_heads), fields.activation("hidden_act")
    d_mlp, eps = fields.integer("intermediate_size"), fields.number("layer_norm_eps")
    own_norm = NormConfig(eps=eps)
    return Config(
        d_model=d_model,
        d_vocab=fields.integer("vocab_size"),
        n_ctx=context_length(fields),
        encoder=StackConfig(
            n_layers=fields.integer("num_hidden_layers"),
            attention=AttentionConfig(n_heads, d_head, **biases(qkv=False, output=False)),
            mlp=MLPConfig(d_mlp, activation, gated=True, bias_in=False, bias_out=False),
            norm=replace(own_norm, placement="post", final=False),
            positions=llama.whole_head_rotary(fields),
            embedding=EmbeddingConfig(n_types=fields.integer("type_vocab_size"), norm=own_norm),
        ),
        **bert.exit_settings(fields, HeadConfig(activation, own_norm)),
    )


def weights(config: Config, fields: ForeignConfig) -> Table:
    """Queries, keys and values are one matrix or three."""
    if f"layers.0.{JOINT}.weight" in fields.weight_names:
        qkv: Table = {"attn.weight_qkv": from_key(f"{JOINT}.weight")}
    else:
        qkv = separate_qkv(*(f"self_attn.{name}_proj" for name in ("q", "k", "v")), biased=False)
    block = {
        **qkv,
        **attention_output("self_attn.o_proj", biased=False),
        **norm("ln1", "post_attention_layernorm"),
        "mlp.weight_gate": from_key("mlp.gate_proj.weight"),
        "mlp.weight_in": from_key("mlp.up_proj.weight"),
        "mlp.weight_out": from_key("mlp.down_proj.weight"),
        **norm("ln2", "post_mlp_layernorm"),
    }
    blocks = each_layer(config.stacks["encoder"].n_layers, block, "layers.{}.")
    table = bert.embeddings(config) | prefixed("encoder.", blocks)
    return table | bert.pooler(config) | bert.exit_weights(config, fields)


FAMILIES = [
    replace(
        bert.BERT,
        name="Nomic BERT",
        model_types=("nomic_bert",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        fields=(*ROTARY, "head_dim", *OF_PUBLISHED),
        unread=(
            *("dense_seq_output", "fused_bias_fc", "fused_dropout_add_ln", "max_trained_positions"),
            *("pad_vocab_size_multiple", "parallel_block_tied_norm", "rotary_scaling_factor"),
            *("use_flash_attn", "use_xentropy"),
        ),
        aliases={
            "layer_norm_epsilon": "layer_norm_eps",
            "n_embd": "hidden_size",
            "n_head": "num_attention_heads",
            "n_inner": "intermediate_size",
            "n_layer": "num_hidden_layers",
            "n_positions": "max_position_embeddings",
            "rotary_emb_base": "rope_theta",
        },
        renames=(
            (r"^(nomic_bert|bert)\.", ""),
            (r"^encoder\.layers\.", "layers."),
            (r"^emb_ln\.", "embeddings.LayerNorm."),
            (r"\.attn\.out_proj\.", ".self_attn.o_proj."),
            (r"\.mlp\.fc11\.", ".mlp.up_proj."),
            (r"\.mlp\.fc12\.", ".mlp.gate_proj."),
            (r"\.mlp\.fc2\.", ".mlp.down_proj."),
            (r"\.norm1\.", ".post_attention_layernorm."),
            (r"\.norm2\.", ".post_mlp_layernorm."),
            (rf"^{bert.MASKED}\.transform\.layer_norm\.", f"{bert.MASKED}.transform.LayerNorm."),
        ),
        ignored=(*bert.BERT.ignored, r"rotary_emb\.inv_freq$"),
        optional=(),
    )
]
