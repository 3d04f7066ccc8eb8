"""GPT-BigCode (Ben Allal et al. 2023), of which SantaCoder and StarCoder are the best known.

GPT-2 with matrices [out, in], and one head of keys and values for all queries unless the file says
otherwise.
"""

from typing import Any

from interp.config import AttentionConfig, Config, MLPConfig, NormConfig, StackConfig
from interp.loading.families.gpt2 import ALIASES
from interp.loading.families.neox import qkv_by_head
from interp.loading.family import Family
from interp.loading.foreign_config import Raw
from interp.loading.weight import Table, at, each_layer, fused_qkv, linear, norm, under, unembedding

DEFAULTS: dict[str, Any] = {
    "vocab_size": 50257,
    "n_positions": 1024,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "activation_function": "gelu_pytorch_tanh",
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "multi_query": True,
    "bos_token_id": 50256,
    "eos_token_id": 50256,
}


def config(raw: Raw) -> Config:
    """Query heads share d_model evenly."""
    raw.only("add_cross_attention", values=(False,))
    d_model, n_heads = raw.whole("n_embd"), raw.whole("n_head")
    return Config(
        d_model=d_model,
        d_vocab=raw.whole("vocab_size"),
        n_ctx=raw.whole("n_positions"),
        tied=raw.head == "tied",
        unembeds=raw.head != "none",
        decoder=StackConfig(
            n_layers=raw.whole("n_layer"),
            attention=AttentionConfig(
                n_heads,
                d_model // n_heads,
                n_kv_heads=1 if raw.flag("multi_query") else n_heads,
                scale=None if raw.flag("scale_attn_weights") else 1.0,
            ),
            mlp=MLPConfig(raw.get("n_inner", 4 * d_model), raw.activation("activation_function")),
            norm=NormConfig(eps=raw.number("layer_norm_epsilon")),
        ),
    )


def weights(config: Config, raw: Raw) -> Table:
    """One product: all queries, the key, the value; or, with as many keys, head by head."""
    stack = config.stacks["decoder"]
    block = {
        **norm("ln1", "ln_1"),
        **(_shared_qkv(stack.attention) if raw.flag("multi_query") else _qkv(stack.attention)),
        **linear("attn.weight_o", "attn.b_O", "attn.c_proj"),
        **norm("ln2", "ln_2"),
        **linear("mlp.weight_in", "mlp.b_in", "mlp.c_fc"),
        **linear("mlp.weight_out", "mlp.b_out", "mlp.c_proj"),
    }
    lines = {
        "weight_e": at("wte.weight"),
        "entry.W_pos": at("wpe.weight"),
        **each_layer(stack.n_layers, block, "blocks", "h.{}."),
        **norm("final_norm", "ln_f"),
    }
    return under("decoder.", lines) | unembedding(raw.head)


def _qkv(attention: AttentionConfig) -> Table:
    return qkv_by_head("attn.c_attn", attention)


def _shared_qkv(attention: AttentionConfig) -> Table:
    n_query = attention.n_heads * attention.d_head
    return fused_qkv(at("attn.c_attn.weight"), at("attn.c_attn.bias"), n_query, attention.d_head)


FAMILIES = [
    Family(
        name="GPT-BigCode, StarCoder",
        model_types=("gpt_bigcode",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        aliases=ALIASES,
        names=((r"^transformer\.", ""),),
        ignored=(r"^h\.\d+\.attn\.(bias|masked_bias)$", r"^bias$"),
        embedding="wte.weight",
    ),
]
