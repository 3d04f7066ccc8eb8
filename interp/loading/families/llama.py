"""Llama 1 to 3 (Touvron et al. 2023), and models of its shape: SmolLM, Mistral, Qwen2, Qwen3.

RMSNorm, rotary positions in halves, grouped heads, SwiGLU, no biases unless said so.
"""

from collections.abc import Sequence
from typing import Any

from interp.config import (
    AttentionConfig,
    Config,
    MLPConfig,
    NormConfig,
    PositionsConfig,
    StackConfig,
)
from interp.loading.family import Family
from interp.loading.foreign_config import Raw
from interp.loading.rotary import longest, rotary, turning_share
from interp.loading.weight import Table, at, linear, norm, separate_qkv, under, unembedding

DEFAULTS: dict[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "attention_bias": False,
    "mlp_bias": False,
}


def config(raw: Raw) -> Config:
    """Biases where the configuration says so; all else is as in :func:`of_parts`."""
    return of_parts(
        raw,
        attention(raw, biased=raw.flag("attention_bias")),
        gated_mlp(raw, biased=raw.flag("mlp_bias")),
    )


def of_parts(raw: Raw, attention: AttentionConfig, mlp: MLPConfig, **rest: Any) -> Config:  # noqa: ANN401
    """What the fields that all models of this shape have mean; ``rest`` are fields of the stack."""
    told: dict[str, Any] = {"norm": rms_norm(raw)} | rest
    if "positions" not in told:
        told["positions"] = of_whole_heads(raw)
    return Config(
        d_model=raw.whole("hidden_size"),
        d_vocab=raw.whole("vocab_size"),
        n_ctx=longest(raw),
        tied=raw.head == "tied",
        unembeds=raw.head != "none",
        decoder=StackConfig(raw.whole("num_hidden_layers"), attention, mlp, **told),
    )


def of_whole_heads(raw: Raw) -> PositionsConfig:
    """Rotary positions that turn all of a head: these models know no other.

    Raises:
        ModelLoadError: only a part is to turn.
    """
    share = turning_share(raw)
    if share != 1:
        raise raw.refused("partial_rotary_factor", share, "1")
    return rotary(raw)


def attention(raw: Raw, *, biased: bool = False, **rest: Any) -> AttentionConfig:  # noqa: ANN401
    """Grouped heads; ``rest`` are further fields of ours."""
    n_heads = raw.whole("num_attention_heads")
    told: dict[str, Any] = {
        "bias_q": biased,
        "bias_k": biased,
        "bias_v": biased,
        "bias_o": biased,
    } | rest
    return AttentionConfig(
        n_heads=n_heads,
        d_head=raw.get("head_dim", raw.whole("hidden_size") // n_heads),
        n_kv_heads=raw.get("num_key_value_heads", n_heads),
        **told,
    )


def gated_mlp(raw: Raw, *, biased: bool = False) -> MLPConfig:
    """act(x·W_gate) * (x·W_in)."""
    return MLPConfig(
        raw.whole("intermediate_size"),
        raw.activation("hidden_act"),
        gated=True,
        bias_in=biased,
        bias_out=biased,
    )


def rms_norm(raw: Raw, **rest: Any) -> NormConfig:  # noqa: ANN401 - fields of ours
    """RMSNorm."""
    return NormConfig(kind="rmsnorm", bias=False, eps=raw.number("rms_norm_eps"), **rest)


def weights(config: Config, raw: Raw) -> Table:
    """Each projection by itself."""
    stack = config.stacks["decoder"]
    block = {
        **norm("ln1", "input_layernorm", bias=False),
        **self_attention(stack.attention),
        **norm("ln2", "post_attention_layernorm", bias=False),
        **gated(biased=stack.mlp is not None and stack.mlp.bias_in),
    }
    return decoder(config, raw, block)


def self_attention(attention: AttentionConfig) -> Table:
    """Projections, and norms of queries and keys where there are some."""
    names = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    lines = {
        **separate_qkv(*names, biased=attention.bias_q),
        **linear("attn.weight_o", "attn.b_O", "self_attn.o_proj", biased=attention.bias_o),
    }
    if attention.qk_norm is not None:
        lines |= {
            **norm("attn.q_norm", "self_attn.q_norm", bias=False),
            **norm("attn.k_norm", "self_attn.k_norm", bias=False),
        }
    return lines


def gated(*, biased: bool = False) -> Table:
    """The three matrices of a gated MLP."""
    return {
        **linear("mlp.weight_gate", "mlp.b_gate", "mlp.gate_proj", biased=biased),
        **linear("mlp.weight_in", "mlp.b_in", "mlp.up_proj", biased=biased),
        **linear("mlp.weight_out", "mlp.b_out", "mlp.down_proj", biased=biased),
    }


def decoder(config: Config, raw: Raw, block: Table) -> Table:
    """The whole table, from that of a block."""
    return of_blocks(raw, [block] * config.stacks["decoder"].n_layers)


def of_blocks(raw: Raw, blocks: Sequence[Table]) -> Table:
    """The whole table, from that of each block."""
    stack = {
        "weight_e": at("embed_tokens.weight"),
        **norm("final_norm", "norm", bias=False),
    }
    for layer, block in enumerate(blocks):
        stack |= under(f"blocks.{layer}.", block, f"layers.{layer}.")
    return under("decoder.", stack) | unembedding(raw.head)


PREFIX = (r"^model\.", "")
IGNORED = (r"rotary_emb\.inv_freq$",)

FAMILIES = [
    Family(
        name="Llama",
        model_types=("llama",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        names=(PREFIX,),
        ignored=IGNORED,
        embedding="embed_tokens.weight",
        ties=False,
    ),
]
