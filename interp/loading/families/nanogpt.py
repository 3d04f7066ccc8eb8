"""nanoGPT (Karpathy 2022): GPT-2 with exact GELU, matrices as ``[out, in]``, optional biases.

Its configuration is the ``model_args`` of a checkpoint.
"""

from dataclasses import replace

from interp.config import AttentionConfig, Config, MLPConfig, NormConfig, StackConfig
from interp.loading.families import gpt2
from interp.loading.foreign_config import ForeignConfig
from interp.loading.settings import biases
from interp.loading.weight import Table, attention_output, from_key, fused_qkv, mlp, norm


def config(fields: ForeignConfig) -> Config:
    """``bias`` sets all biases, including those of the norms."""
    fields.allow_only("tie_word_embeddings", (True,))
    d_model, n_heads = fields.integer("n_embd"), fields.integer("n_head")
    biased = fields.flag("bias")
    bias = biases(qkv=biased, output=biased)
    return Config(
        d_model=d_model,
        d_vocab=fields.integer("vocab_size"),
        n_ctx=fields.integer("block_size"),
        tied=fields.unembedding == "tied",
        decoder=StackConfig(
            n_layers=fields.integer("n_layer"),
            attention=AttentionConfig(n_heads, d_model // n_heads, **bias),
            mlp=MLPConfig(4 * d_model, "gelu", bias_in=biased, bias_out=biased),
            norm=NormConfig(bias=biased),
        ),
    )


def weights(config: Config, fields: ForeignConfig) -> Table:
    """Like GPT-2, without transposition."""
    d, biased = config.d_model, fields.flag("bias")
    bias = from_key("attn.c_attn.bias") if biased else None
    block = {
        **norm("ln1", "ln_1", bias=biased),
        **fused_qkv(from_key("attn.c_attn.weight"), bias, d, d),
        **attention_output("attn.c_proj", biased=biased),
        **norm("ln2", "ln_2", bias=biased),
        **mlp("mlp.c_fc", "mlp.c_proj", biased=biased),
    }
    return gpt2.decoder(config, fields, block)


FAMILIES = [
    replace(
        gpt2.GPT2,
        name="nanoGPT",
        model_types=("nanogpt",),
        config=config,
        weights=weights,
        defaults={"bias": True},
        fields=("n_layer", "n_head", "n_embd", "block_size", "vocab_size"),
        unread=(),
        aliases={},
        renames=((r"^_orig_mod\.", ""), *gpt2.GPT2.renames),
        ignored=(r"^h\.\d+\.attn\.bias$",),
    )
]
