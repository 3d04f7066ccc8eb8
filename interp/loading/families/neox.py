"""GPT-NeoX (Black et al. 2022), of which Pythia (Biderman et al. 2023) is the family most studied.

Attention and MLP stand side by side, each with a norm of its own, unless the file says one after
the other; a quarter of each head turns. Queries, keys and values are one matrix, head by head.
"""

from typing import Any

from interp.config import AttentionConfig, Config, MLPConfig, NormConfig, StackConfig
from interp.loading.family import Family
from interp.loading.foreign_config import Raw
from interp.loading.rotary import longest, rotary
from interp.loading.weight import Table, at, each_layer, fused_qkv, linear, norm, under, unembedding

DEFAULTS: dict[str, Any] = {
    "vocab_size": 50432,
    "hidden_size": 6144,
    "num_hidden_layers": 44,
    "num_attention_heads": 64,
    "intermediate_size": 24576,
    "hidden_act": "gelu",
    "max_position_embeddings": 2048,
    "layer_norm_eps": 1e-5,
    "use_parallel_residual": True,
    "rotary_pct": 0.25,
    "rotary_emb_base": 10_000.0,
    "attention_bias": True,
    "bos_token_id": 0,
    "eos_token_id": 2,
}


def config(raw: Raw) -> Config:
    """Heads share d_model evenly."""
    d_model, n_heads = raw.whole("hidden_size"), raw.whole("num_attention_heads")
    biased = raw.flag("attention_bias")
    beside = raw.flag("use_parallel_residual")
    return Config(
        d_model=d_model,
        d_vocab=raw.whole("vocab_size"),
        n_ctx=longest(raw),
        tied=raw.head == "tied",
        unembeds=raw.head != "none",
        decoder=StackConfig(
            n_layers=raw.whole("num_hidden_layers"),
            attention=AttentionConfig(
                n_heads,
                d_model // n_heads,
                bias_q=biased,
                bias_k=biased,
                bias_v=biased,
                bias_o=biased,
            ),
            mlp=MLPConfig(raw.whole("intermediate_size"), raw.activation("hidden_act")),
            norm=NormConfig(
                placement="parallel" if beside else "pre", eps=raw.number("layer_norm_eps")
            ),
            positions=rotary(
                raw, theta=raw.number("rotary_emb_base"), share=raw.number("rotary_pct")
            ),
        ),
    )


def weights(config: Config, raw: Raw) -> Table:
    """The joint product sorted into queries, keys and values."""
    attention = config.stacks["decoder"].attention
    block = {
        **norm("ln1", "input_layernorm"),
        **qkv_by_head("attention.query_key_value", attention),
        **linear("attn.weight_o", "attn.b_O", "attention.dense", biased=attention.bias_o),
        **norm("ln2", "post_attention_layernorm"),
        **linear("mlp.weight_in", "mlp.b_in", "mlp.dense_h_to_4h"),
        **linear("mlp.weight_out", "mlp.b_out", "mlp.dense_4h_to_h"),
    }
    stack = {
        "weight_e": at("embed_in.weight"),
        **each_layer(config.stacks["decoder"].n_layers, block, "blocks", "layers.{}."),
        **norm("final_norm", "final_layer_norm"),
    }
    return under("decoder.", stack) | unembedding(raw.head)


def qkv_by_head(source: str, attention: AttentionConfig) -> Table:
    """Queries, keys and values whose rows are laid out [head][q k v][d_head]."""
    width = attention.n_heads * attention.d_head
    rows = at(f"{source}.weight").by_head(attention.n_heads)
    bias = at(f"{source}.bias").by_head(attention.n_heads) if attention.bias_q else None
    return fused_qkv(rows, bias, width, width)


FAMILIES = [
    Family(
        name="GPT-NeoX, Pythia",
        model_types=("gpt_neox",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        names=((r"^gpt_neox\.", ""), (r"^embed_out\.", "lm_head.")),
        ignored=(r"^layers\.\d+\.attention\.(bias|masked_bias)$", r"rotary_emb\.inv_freq$"),
        embedding="embed_in.weight",
        ties=False,
    ),
]
