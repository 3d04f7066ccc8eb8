"""GPT-2 (Radford et al. 2019), and models of its shape: pre-norm, learned positions, tied.

Matrices are stored [in, out], queries, keys and values as one of them.
"""

from typing import Any

from interp.config import AttentionConfig, Config, LayerConfig, MLPConfig, NormConfig, StackConfig
from interp.loading.family import Family
from interp.loading.foreign_config import Raw
from interp.loading.weight import Table, at, each_layer, fused_qkv, norm, under, unembedding

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
ALIASES = {
    "max_position_embeddings": "n_positions",
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
}


def config(raw: Raw) -> Config:
    """Heads share d_model evenly; scores are divided by √d_head, and by 1 + layer if said so."""
    raw.only("add_cross_attention", values=(False,))
    d_model, n_heads, n_layers = raw.whole("n_embd"), raw.whole("n_head"), raw.whole("n_layer")
    d_head = d_model // n_heads
    scale = None if raw.flag("scale_attn_weights") else 1.0
    by_layer = raw.flag("scale_attn_by_inverse_layer_idx")
    divisor = scale or d_head**0.5
    return Config(
        d_model=d_model,
        d_vocab=raw.whole("vocab_size"),
        n_ctx=raw.whole("n_positions"),
        tied=raw.head == "tied",
        unembeds=raw.head != "none",
        decoder=StackConfig(
            n_layers=n_layers,
            attention=AttentionConfig(n_heads, d_head, scale=scale),
            mlp=MLPConfig(raw.get("n_inner", 4 * d_model), raw.activation("activation_function")),
            norm=NormConfig(eps=raw.number("layer_norm_epsilon")),
            exceptions=tuple(
                LayerConfig((n,), AttentionConfig(n_heads, d_head, scale=divisor * (n + 1)))
                for n in range(1, n_layers if by_layer else 1)
            ),
        ),
    )


def weights(config: Config, raw: Raw) -> Table:
    """Matrices turned; the joint product cut into queries, keys and values."""
    d = config.d_model
    block = {
        **norm("ln1", "ln_1"),
        **fused_qkv(at("attn.c_attn.weight").T, at("attn.c_attn.bias"), d, d),
        "attn.weight_o": at("attn.c_proj.weight").T,
        "attn.b_O": at("attn.c_proj.bias"),
        **norm("ln2", "ln_2"),
        "mlp.weight_in": at("mlp.c_fc.weight").T,
        "mlp.b_in": at("mlp.c_fc.bias"),
        "mlp.weight_out": at("mlp.c_proj.weight").T,
        "mlp.b_out": at("mlp.c_proj.bias"),
    }
    stack = {
        "weight_e": at("wte.weight"),
        "entry.W_pos": at("wpe.weight"),
        **each_layer(raw.whole("n_layer"), block, "blocks", "h.{}."),
        **norm("final_norm", "ln_f"),
    }
    return under("decoder.", stack) | unembedding(raw.head)


FAMILIES = [
    Family(
        name="GPT-2",
        model_types=("gpt2",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        aliases=ALIASES,
        names=((r"^transformer\.", ""),),
        ignored=(r"^h\.\d+\.attn\.(bias|masked_bias)$",),
        embedding="wte.weight",
    ),
]
