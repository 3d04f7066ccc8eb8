"""GPT-2 (Radford et al. 2019), and parts shared by models of its shape.

Pre-norm with LayerNorm, learned positions, a tied head. Matrices are stored as ``[in, out]``;
queries, keys and values are one matrix.
"""

from typing import Any

from interp.config import AttentionConfig, Config, LayerConfig, MLPConfig, NormConfig, StackConfig
from interp.loading.family import Family
from interp.loading.foreign_config import ForeignConfig
from interp.loading.settings import plain_exit
from interp.loading.weight import (
    Table,
    each_layer,
    from_key,
    fused_qkv,
    norm,
    prefixed,
    unembedding,
)

DEFAULTS: dict[str, Any] = {
    "vocab_size": 50257,
    "n_positions": 1024,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
}


def config(fields: ForeignConfig) -> Config:
    """The divisor of scores grows with depth if ``scale_attn_by_inverse_layer_idx`` is set."""
    fields.allow_only("add_cross_attention", values=(False,))
    n_heads, n_layers = fields.integer("n_head"), fields.integer("n_layer")
    d_head = fields.integer("n_embd") // n_heads
    scale = score_scale(fields)
    by_layer = fields.flag("scale_attn_by_inverse_layer_idx")
    divisor = scale or d_head**0.5
    return Config(
        d_model=fields.integer("n_embd"),
        d_vocab=fields.integer("vocab_size"),
        n_ctx=fields.integer("n_positions"),
        **plain_exit(fields),
        decoder=StackConfig(
            n_layers=n_layers,
            attention=AttentionConfig(n_heads, d_head, scale=scale),
            mlp=mlp(fields),
            norm=layer_norm(fields),
            exceptions=tuple(
                LayerConfig((n,), AttentionConfig(n_heads, d_head, scale=divisor * (n + 1)))
                for n in range(1, n_layers if by_layer else 1)
            ),
        ),
    )


def score_scale(fields: ForeignConfig) -> float | None:
    """The divisor of scores: √d_head (``None``), or 1 without ``scale_attn_weights``."""
    return None if fields.flag("scale_attn_weights") else 1.0


def mlp(fields: ForeignConfig) -> MLPConfig:
    """An MLP of width ``n_inner``, by default 4·d_model."""
    width = fields.get("n_inner", 4 * fields.integer("n_embd"))
    return MLPConfig(width, fields.activation("activation_function"))


def layer_norm(fields: ForeignConfig) -> NormConfig:
    """Pre-norm with ``layer_norm_epsilon``."""
    return NormConfig(eps=fields.number("layer_norm_epsilon"))


def weights(config: Config, fields: ForeignConfig) -> Table:
    """Matrices are transposed."""
    d = config.d_model
    block = {
        **norm("ln1", "ln_1"),
        **fused_qkv(from_key("attn.c_attn.weight").T, from_key("attn.c_attn.bias"), d, d),
        "attn.weight_o": from_key("attn.c_proj.weight").T,
        "attn.b_O": from_key("attn.c_proj.bias"),
        **norm("ln2", "ln_2"),
        "mlp.weight_in": from_key("mlp.c_fc.weight").T,
        "mlp.b_in": from_key("mlp.c_fc.bias"),
        "mlp.weight_out": from_key("mlp.c_proj.weight").T,
        "mlp.b_out": from_key("mlp.c_proj.bias"),
    }
    return decoder(config, fields, block)


def decoder(config: Config, fields: ForeignConfig, block: Table) -> Table:
    """The table of the model, from that of a block."""
    stack = config.stacks["decoder"]
    table = {
        "weight_e": from_key("wte.weight"),
        "entry.W_pos": from_key("wpe.weight"),
        **each_layer(stack.n_layers, block, "h.{}."),
        **norm("final_norm", "ln_f", bias=stack.norm.bias),
    }
    return prefixed("decoder.", table) | unembedding(fields.unembedding)


GPT2 = Family(
    name="GPT-2",
    model_types=("gpt2",),
    config=config,
    weights=weights,
    defaults=DEFAULTS,
    fields=("n_inner", "add_cross_attention"),
    unread=("n_ctx",),
    aliases={
        "max_position_embeddings": "n_positions",
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
    },
    renames=((r"^transformer\.", ""),),
    ignored=(r"^h\.\d+\.attn\.(bias|masked_bias)$",),
    embedding="wte.weight",
)
FAMILIES = [GPT2]
