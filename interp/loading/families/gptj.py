"""GPT-J (Wang & Komatsuzaki 2021): attention and MLP side by side, both behind one norm.

The first dimensions of a head turn, neighbours with each other. The unembedding has a bias.
"""

from typing import Any, TypedDict

from interp.config import (
    AttentionConfig,
    Config,
    MLPConfig,
    NormConfig,
    PositionsConfig,
    StackConfig,
)
from interp.loading.families.gpt2 import ALIASES
from interp.loading.family import Family
from interp.loading.foreign_config import Raw
from interp.loading.weight import (
    Table,
    at,
    each_layer,
    linear,
    norm,
    separate_qkv,
    under,
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


def config(raw: Raw) -> Config:
    """Heads share d_model evenly; no biases in attention."""
    d_model, n_heads = raw.whole("n_embd"), raw.whole("n_head")
    if raw.said("rotary_dim") is None:
        raise raw.refused("rotary_dim", None, "a whole number of at least 1")
    return Config(
        d_model=d_model,
        d_vocab=raw.whole("vocab_size"),
        n_ctx=raw.whole("n_positions"),
        **biased_exit(raw),
        decoder=StackConfig(
            n_layers=raw.whole("n_layer"),
            attention=AttentionConfig(
                n_heads, d_model // n_heads, bias_q=False, bias_k=False, bias_v=False, bias_o=False
            ),
            mlp=MLPConfig(raw.get("n_inner", 4 * d_model), raw.activation("activation_function")),
            norm=NormConfig(placement="parallel_tied", eps=raw.number("layer_norm_epsilon")),
            positions=PositionsConfig(
                kind="rotary", layout="interleaved", d_rotary=raw.whole("rotary_dim")
            ),
        ),
    )


class Exit(TypedDict):
    """Fields of ours that tell of the unembedding."""

    tied: bool
    unembeds: bool
    bias_u: bool


def biased_exit(raw: Raw) -> Exit:
    """Of an unembedding with a bias; where a tied one lacks it, the model is a base without any."""
    unembeds = raw.head == "own" or BIAS in raw.keys
    return {"tied": unembeds and raw.head == "tied", "unembeds": unembeds, "bias_u": unembeds}


def weights(config: Config, raw: Raw) -> Table:
    """Each projection by itself."""
    block = {
        **norm("ln1", "ln_1"),
        **separate_qkv("attn.q_proj", "attn.k_proj", "attn.v_proj", biased=False),
        "attn.weight_o": at("attn.out_proj.weight"),
        **linear("mlp.weight_in", "mlp.b_in", "mlp.fc_in"),
        **linear("mlp.weight_out", "mlp.b_out", "mlp.fc_out"),
    }
    stack = {
        "weight_e": at("wte.weight"),
        **each_layer(config.stacks["decoder"].n_layers, block, "blocks", "h.{}."),
        **norm("final_norm", "ln_f"),
    }
    return under("decoder.", stack) | biased_unembedding(config, raw)


def biased_unembedding(config: Config, raw: Raw) -> Table:
    """W_U, if it has weights of its own, and its bias."""
    return unembedding(raw.head) | ({"unembed.b_U": at(BIAS)} if config.bias_u else {})


BIAS = "lm_head.bias"

FAMILIES = [
    Family(
        name="GPT-J",
        model_types=("gptj",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        aliases=ALIASES,
        names=((r"^transformer\.", ""),),
        ignored=(r"^h\.\d+\.attn\.(bias|masked_bias|embed_positions)$",),
        embedding="wte.weight",
        ties=False,
    ),
]
