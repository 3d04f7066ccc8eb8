"""nanoGPT (Karpathy 2022): GPT-2 with exact GELU, matrices [out, in], biases only if said so.

Its configuration is the ``model_args`` of a checkpoint.
"""

from interp.config import AttentionConfig, Config, MLPConfig, NormConfig, StackConfig
from interp.loading.family import Family
from interp.loading.foreign_config import Raw
from interp.loading.weight import Table, at, each_layer, fused_qkv, linear, norm, under, unembedding

KNOWN = ("n_layer", "n_head", "n_embd", "block_size", "bias", "vocab_size", "dropout")


def config(raw: Raw) -> Config:
    """One flag for all biases, those of the norms included."""
    raw.no_others("model_type", *KNOWN)
    d_model, n_heads = raw.whole("n_embd"), raw.whole("n_head")
    biased = raw.flag("bias")
    return Config(
        d_model=d_model,
        d_vocab=raw.whole("vocab_size"),
        n_ctx=raw.whole("block_size"),
        tied=raw.head == "tied",
        decoder=StackConfig(
            n_layers=raw.whole("n_layer"),
            attention=AttentionConfig(
                n_heads,
                d_model // n_heads,
                bias_q=biased,
                bias_k=biased,
                bias_v=biased,
                bias_o=biased,
            ),
            mlp=MLPConfig(4 * d_model, "gelu", bias_in=biased, bias_out=biased),
            norm=NormConfig(bias=biased),
        ),
    )


def weights(config: Config, raw: Raw) -> Table:
    """As GPT-2's, not turned."""
    d, biased = config.d_model, raw.flag("bias")
    bias = at("attn.c_attn.bias") if biased else None
    block = {
        **norm("ln1", "ln_1", bias=biased),
        **fused_qkv(at("attn.c_attn.weight"), bias, d, d),
        **linear("attn.weight_o", "attn.b_O", "attn.c_proj", biased=biased),
        **norm("ln2", "ln_2", bias=biased),
        **linear("mlp.weight_in", "mlp.b_in", "mlp.c_fc", biased=biased),
        **linear("mlp.weight_out", "mlp.b_out", "mlp.c_proj", biased=biased),
    }
    stack = {
        "weight_e": at("wte.weight"),
        "entry.W_pos": at("wpe.weight"),
        **each_layer(raw.whole("n_layer"), block, "blocks", "h.{}."),
        **norm("final_norm", "ln_f", bias=biased),
    }
    return under("decoder.", stack) | unembedding(raw.head)


FAMILIES = [
    Family(
        name="nanoGPT",
        model_types=("nanogpt",),
        config=config,
        weights=weights,
        defaults={"bias": True},
        names=((r"^_orig_mod\.", ""), (r"^transformer\.", "")),
        ignored=(r"^h\.\d+\.attn\.bias$",),
        embedding="wte.weight",
    ),
]
