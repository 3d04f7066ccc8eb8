"""GPT-J (Wang & Komatsuzaki 2021): attention and MLP in parallel, after one shared norm.

Rotary positions in layout ``interleaved`` rotate the first ``rotary_dim`` dimensions of a head.
Attention has no biases; the unembedding has one.
"""

from dataclasses import replace
from typing import Any, TypedDict

from interp.config import AttentionConfig, Config, NormConfig, PositionsConfig, StackConfig
from interp.loading.families import gpt2
from interp.loading.foreign_config import ForeignConfig
from interp.loading.settings import biases
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
    "vocab_size": 50400,
    "n_positions": 2048,
    "n_embd": 4096,
    "n_layer": 28,
    "n_head": 16,
    "rotary_dim": 64,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "bos_token_id": 50256,
    "eos_token_id": 50256,
}
BIAS = "lm_head.bias"


def config(fields: ForeignConfig) -> Config:
    """Parallel blocks with rotary positions."""
    d_model, n_heads = fields.integer("n_embd"), fields.integer("n_head")
    if fields.nullable("rotary_dim") is None:
        raise fields.unsupported("rotary_dim", None, "an integer of at least 1")
    d_rotary, eps = fields.integer("rotary_dim"), fields.number("layer_norm_epsilon")
    bias = biases(qkv=False, output=False)
    return Config(
        d_model=d_model,
        d_vocab=fields.integer("vocab_size"),
        n_ctx=fields.integer("n_positions"),
        **biased_exit(fields),
        decoder=StackConfig(
            n_layers=fields.integer("n_layer"),
            attention=AttentionConfig(n_heads, d_model // n_heads, **bias),
            mlp=gpt2.mlp(fields),
            norm=NormConfig(placement="parallel_tied", eps=eps),
            positions=PositionsConfig(kind="rotary", layout="interleaved", d_rotary=d_rotary),
        ),
    )


class BiasedExit(TypedDict):
    """Fields of :class:`interp.Config` that describe an unembedding with a bias."""

    tied: bool
    unembeds: bool
    bias_u: bool


def biased_exit(fields: ForeignConfig) -> BiasedExit:
    """An unembedding with a bias, if there is one; a tied one without bias means a base model."""
    unembeds = fields.unembedding == "untied" or BIAS in fields.weight_names
    tied = unembeds and fields.unembedding == "tied"
    return {"tied": tied, "unembeds": unembeds, "bias_u": unembeds}


def weights(config: Config, fields: ForeignConfig) -> Table:
    """All projections are separate matrices."""
    block = {
        **norm("ln1", "ln_1"),
        **separate_qkv("attn.q_proj", "attn.k_proj", "attn.v_proj", biased=False),
        **attention_output("attn.out_proj", biased=False),
        **mlp("mlp.fc_in", "mlp.fc_out"),
    }
    stack = {
        "weight_e": from_key("wte.weight"),
        **each_layer(config.stacks["decoder"].n_layers, block, "h.{}."),
        **norm("final_norm", "ln_f"),
    }
    return prefixed("decoder.", stack) | biased_unembedding(config, fields)


def biased_unembedding(config: Config, fields: ForeignConfig) -> Table:
    """W_U, unless it is tied, and b_U."""
    bias = {"unembed.b_U": from_key(BIAS)} if config.bias_u else {}
    return unembedding(fields.unembedding) | bias


FAMILIES = [
    replace(
        gpt2.GPT2,
        name="GPT-J",
        model_types=("gptj",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        fields=("n_inner",),
        unread=("n_ctx", "rotary", "scale_attn_weights"),
        ignored=(r"^h\.\d+\.attn\.(bias|masked_bias|embed_positions)$",),
        tied=False,
    )
]
