"""Llama 1 to 3 (Touvron et al. 2023, arXiv:2302.13971), and parts shared by models of its shape.

Pre-norm with RMSNorm, rotary positions in layout ``half``, grouped-query attention, SwiGLU; no
biases by default.
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
from interp.loading.foreign_config import ForeignConfig
from interp.loading.rotary import FIELDS, context_length, rotary, rotary_fraction
from interp.loading.settings import biases, plain_exit
from interp.loading.weight import (
    Table,
    attention_output,
    from_key,
    linear,
    norm,
    prefixed,
    separate_qkv,
    unembedding,
)

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


def config(fields: ForeignConfig) -> Config:
    """``attention_bias`` and ``mlp_bias`` set all biases of attention and MLP."""
    attention = grouped_attention(fields, biased=fields.flag("attention_bias"))
    return of_parts(fields, attention, gated_mlp(fields, biased=fields.flag("mlp_bias")))


def of_parts(
    fields: ForeignConfig,
    attention: AttentionConfig,
    mlp: MLPConfig,
    **stack: Any,  # noqa: ANN401
) -> Config:
    """The configuration with this attention and MLP.

    Args:
        fields: the foreign configuration.
        attention: the attention of all layers.
        mlp: the MLP of all layers.
        **stack: further fields of :class:`StackConfig`; by default RMSNorm and rotary positions.
    """
    if "norm" not in stack:
        stack["norm"] = rms_norm(fields)
    if "positions" not in stack:
        stack["positions"] = whole_head_rotary(fields)
    return Config(
        d_model=fields.integer("hidden_size"),
        d_vocab=fields.integer("vocab_size"),
        n_ctx=context_length(fields),
        **plain_exit(fields),
        decoder=StackConfig(fields.integer("num_hidden_layers"), attention, mlp, **stack),
    )


def whole_head_rotary(fields: ForeignConfig) -> PositionsConfig:
    """Rotary positions of all dimensions of a head.

    Raises:
        ModelLoadError: ``partial_rotary_factor`` is not 1.
    """
    fraction = rotary_fraction(fields)
    if fraction != 1:
        raise fields.unsupported("partial_rotary_factor", fraction, "1")
    return rotary(fields)


def grouped_attention(
    fields: ForeignConfig,
    *,
    biased: bool = False,
    **attention: Any,  # noqa: ANN401
) -> AttentionConfig:
    """Grouped-query attention.

    Args:
        fields: the foreign configuration.
        biased: whether queries, keys, values and output have biases.
        **attention: further fields of :class:`AttentionConfig`.
    """
    n_heads = fields.integer("num_attention_heads")
    settings: dict[str, Any] = {**biases(qkv=biased, output=biased), **attention}
    return AttentionConfig(
        n_heads=n_heads,
        d_head=fields.get("head_dim", fields.integer("hidden_size") // n_heads),
        n_kv_heads=fields.get("num_key_value_heads", n_heads),
        **settings,
    )


def gated_mlp(fields: ForeignConfig, *, biased: bool = False) -> MLPConfig:
    """act(x·W_gate) * (x·W_in)."""
    return MLPConfig(
        fields.integer("intermediate_size"),
        fields.activation("hidden_act"),
        gated=True,
        bias_in=biased,
        bias_out=biased,
    )


def rms_norm(fields: ForeignConfig, **settings: Any) -> NormConfig:  # noqa: ANN401
    """RMSNorm; ``settings`` are further fields of :class:`NormConfig`."""
    return NormConfig(kind="rmsnorm", bias=False, eps=fields.number("rms_norm_eps"), **settings)


def weights(config: Config, fields: ForeignConfig) -> Table:
    """All projections are separate matrices."""
    stack = config.stacks["decoder"]
    mlp = gated(biased=stack.mlp is not None and stack.mlp.bias_in)
    return decoder(config, fields, {**attention_and_norms(stack), **mlp})


def attention_and_norms(stack: StackConfig) -> Table:
    """Attention of a block, and the norms before attention and MLP."""
    return {
        **norm("ln1", "input_layernorm", **learned(stack.norm)),
        **self_attention(stack.attention),
        **norm("ln2", "post_attention_layernorm", **learned(stack.norm)),
    }


def learned(norm: NormConfig) -> dict[str, bool]:
    """Whether a norm has a gain and a bias."""
    return {"gain": norm.gain, "bias": norm.bias}


def self_attention(attention: AttentionConfig) -> Table:
    """Projections of attention, and norms of queries and keys if there are any."""
    names = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    table = {
        **separate_qkv(*names, biased=attention.bias_q),
        **attention_output("self_attn.o_proj", biased=attention.bias_o),
    }
    if attention.qk_norm is not None:
        table |= {
            **norm("attn.q_norm", "self_attn.q_norm", bias=False),
            **norm("attn.k_norm", "self_attn.k_norm", bias=False),
        }
    return table


def gated(*, biased: bool = False) -> Table:
    """The three matrices of a gated MLP."""
    return {
        **linear("mlp.weight_gate", "mlp.b_gate", "mlp.gate_proj", biased=biased),
        **linear("mlp.weight_in", "mlp.b_in", "mlp.up_proj", biased=biased),
        **linear("mlp.weight_out", "mlp.b_out", "mlp.down_proj", biased=biased),
    }


def decoder(config: Config, fields: ForeignConfig, block: Table) -> Table:
    """The table of the model, from that of a block, which all blocks share."""
    return of_blocks(config, fields, [block] * config.stacks["decoder"].n_layers)


def of_blocks(config: Config, fields: ForeignConfig, blocks: Sequence[Table]) -> Table:
    """The table of the model, from that of each block."""
    final = norm("final_norm", "norm", **learned(config.stacks["decoder"].norm))
    table = {"weight_e": from_key("embed_tokens.weight"), **final}
    for layer, block in enumerate(blocks):
        table |= prefixed(f"blocks.{layer}.", block, f"layers.{layer}.")
    return prefixed("decoder.", table) | unembedding(fields.unembedding)


LLAMA = Family(
    name="Llama",
    model_types=("llama",),
    config=config,
    weights=weights,
    defaults=DEFAULTS,
    fields=("head_dim", "num_key_value_heads", *FIELDS),
    unread=("pretraining_tp", "max_sequence_length"),
    renames=((r"^model\.", ""),),
    ignored=(r"rotary_emb\.inv_freq$",),
    embedding="embed_tokens.weight",
    tied=False,
)
FAMILIES = [LLAMA]
