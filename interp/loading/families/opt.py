"""OPT (Zhang et al. 2022, arXiv:2205.01068): GPT-2 with ReLU and separate projections.

The 350m model is post-norm, has no final norm, and has embeddings narrower than the stream; all
others are pre-norm. The first two rows of the table of positions are unused.
"""

from typing import Any

from interp.config import (
    AttentionConfig,
    Config,
    EmbeddingConfig,
    MLPConfig,
    NormConfig,
    StackConfig,
)
from interp.loading.family import Family
from interp.loading.foreign_config import ForeignConfig
from interp.loading.settings import biases, plain_exit
from interp.loading.weight import (
    Table,
    attention_output,
    each_layer,
    from_key,
    mlp,
    norm,
    prefixed,
    separate_qkv,
    unembedding,
)

DEFAULTS: dict[str, Any] = {
    "vocab_size": 50272,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "ffn_dim": 3072,
    "max_position_embeddings": 2048,
    "do_layer_norm_before": True,
    "_remove_final_layer_norm": False,
    "num_attention_heads": 12,
    "activation_function": "relu",
    "enable_bias": True,
    "layer_norm_elementwise_affine": True,
    "bos_token_id": 2,
    "eos_token_id": 2,
}
UNUSED_POSITIONS = 2


def config(fields: ForeignConfig) -> Config:
    """``enable_bias`` sets all biases except those of the norms."""
    d_model, n_heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    width, biased = fields.get("word_embed_proj_dim", d_model), fields.flag("enable_bias")
    bias = biases(qkv=biased, output=biased)
    narrow = None if width == d_model else width
    return Config(
        d_model=d_model,
        d_vocab=fields.integer("vocab_size"),
        n_ctx=fields.integer("max_position_embeddings"),
        **plain_exit(fields),
        d_unembed=narrow,
        decoder=StackConfig(
            n_layers=fields.integer("num_hidden_layers"),
            attention=AttentionConfig(n_heads, d_model // n_heads, **bias),
            mlp=MLPConfig(
                fields.integer("ffn_dim"),
                fields.activation("activation_function"),
                bias_in=biased,
                bias_out=biased,
            ),
            norm=_norm(fields),
            embedding=EmbeddingConfig(width=narrow),
        ),
    )


def _norm(fields: ForeignConfig) -> NormConfig:
    pre_norm = fields.flag("do_layer_norm_before")
    affine = fields.flag("layer_norm_elementwise_affine")
    return NormConfig(
        placement="pre" if pre_norm else "post",
        final=pre_norm and not fields.flag("_remove_final_layer_norm"),
        gain=affine,
        bias=affine,
    )


def weights(config: Config, fields: ForeignConfig) -> Table:
    """All projections are separate matrices."""
    stack = config.stacks["decoder"]
    biased, affine = stack.attention.bias_o, stack.norm.gain
    names = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    block = {
        **(norm("ln1", "self_attn_layer_norm") if affine else {}),
        **separate_qkv(*names, biased=biased),
        **attention_output("self_attn.out_proj", biased=biased),
        **(norm("ln2", "final_layer_norm") if affine else {}),
        **mlp("fc1", "fc2", biased=biased),
    }
    table = {
        "weight_e": from_key("embed_tokens.weight"),
        "entry.W_pos": from_key("embed_positions.weight")[UNUSED_POSITIONS:],
        **each_layer(stack.n_layers, block, "layers.{}."),
    }
    if stack.norm.final and affine:
        table |= norm("final_norm", "final_layer_norm")
    if stack.embedding.width is not None:
        table |= {"tokens.project.weight": from_key("project_in.weight")}
    table = prefixed("decoder.", table) | unembedding(fields.unembedding)
    if config.d_unembed is not None:
        table |= {"unembed.project.weight": from_key("project_out.weight")}
    return table


FAMILIES = [
    Family(
        name="OPT",
        model_types=("opt",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        fields=("word_embed_proj_dim",),
        renames=((r"^model\.", ""), (r"^decoder\.", "")),
        embedding="embed_tokens.weight",
    ),
]
