"""Convert a configuration of this package to one of TransformerLens's BERT or T5."""

from dataclasses import replace
from typing import Any

from interp.compat.config import HookedTransformerConfig
from interp.compat.encoder_config import N_TYPES, RELATIVE
from interp.compat.errors import InvalidConfig
from interp.compat.hooked_config import NAME_OF
from interp.config import Config, NormConfig, StackConfig

BERT, T5 = "BertForMaskedLM", "T5ForConditionalGeneration"
"""TransformerLens's names for these architectures."""
T5_N_CTX = 512
"""The length at which texts for T5 are truncated; the model itself has no length limit."""


def bert_hooked_config(config: Config) -> HookedTransformerConfig:
    """The configuration of TransformerLens for a masked language model such as BERT's.

    Raises:
        InvalidConfig: TransformerLens has no such encoder; the message says why.
    """
    stack = config.encoder
    if stack is None or config.decoder is not None:
        raise _refusal(config, "HookedEncoder takes encoders, and this is not one")
    head, embedding, norm = config.head, stack.embedding, stack.norm
    plain, layer_norm = replace(norm, placement="pre", final=True), NormConfig(eps=norm.eps)
    alike = head is not None and plain == head.norm == embedding.norm == layer_norm
    _refuse_problems(
        config,
        "HookedEncoder",
        {
            "a model without the head of a masked language model": head is None
            or config.n_classes is not None
            or head.norm.kind == "none",
            "a head with another activation than gelu": head is not None
            and head.activation != "gelu",
            "norms that differ, or are not LayerNorms": not alike,
            f"norms placed as {norm.placement}": norm.placement != "post",
            f"{stack.positions.kind} positions": stack.positions.kind != "learned",
            f"{embedding.n_types} token types": embedding.n_types != N_TYPES,
            **_problems(config, stack),
        },
    )
    return HookedTransformerConfig(
        **_fields(config, stack),
        n_ctx=config.n_ctx,
        original_architecture=BERT,
    )


def t5_hooked_config(config: Config) -> HookedTransformerConfig:
    """The configuration of TransformerLens for an encoder–decoder such as T5.

    Raises:
        InvalidConfig: TransformerLens has no such encoder–decoder; the message says why.
    """
    stack, decoder = config.encoder, config.decoder
    if stack is None or decoder is None:
        raise _refusal(config, "HookedEncoderDecoder takes encoder–decoders, and this is not one")
    norm, positions = stack.norm, stack.positions
    scale = config.logit_scale
    is_rms = norm.kind == "rmsnorm" and norm.placement == "pre" and not norm.unit_offset
    _refuse_problems(
        config,
        "HookedEncoderDecoder",
        {
            "stacks that differ": stack != decoder,
            "an embedding for each stack": not config.shared,
            "no unembedding": not config.unembeds or config.n_classes is not None,
            "other norms than RMSNorms before sub-layers": not is_rms or not norm.final,
            f"{positions.kind} positions": positions.kind != "buckets",
            "this scale of the logits": scale not in (None, config.d_model**-0.5),
            **_problems(config, stack),
        },
    )
    return HookedTransformerConfig(
        **_fields(config, stack),
        n_ctx=min(config.n_ctx, T5_N_CTX),
        original_architecture=T5,
        positional_embedding_type=RELATIVE,
        relative_attention_num_buckets=positions.n_buckets,
        relative_attention_max_distance=positions.max_distance,
        decoder_start_token_id=config.tokens.decoder_start,
        tie_word_embeddings=scale is not None,
    )


def _fields(config: Config, stack: StackConfig) -> dict[str, Any]:
    attention, mlp = stack.attention, stack.mlp
    scaled = attention.divisor != 1.0
    return {
        "d_model": config.d_model,
        "d_head": attention.d_head,
        "n_heads": attention.n_heads,
        "n_layers": stack.n_layers,
        "d_mlp": None if mlp is None else mlp.d_mlp,
        "d_vocab": config.d_vocab,
        "act_fn": "relu" if mlp is None else NAME_OF[mlp.activation],
        "gated_mlp": mlp is not None and mlp.gated,
        "eps": stack.norm.eps,
        "attention_dir": "bidirectional",
        "use_attn_scale": scaled,
        "attn_scale": attention.divisor if scaled else -1.0,
        "attn_scores_soft_cap": attention.cap or -1.0,
        "model_name": config.name or "custom",
        "device": "cpu",
    }


def _problems(config: Config, stack: StackConfig) -> dict[str, bool]:
    """Parts that neither of TransformerLens's encoders can have."""
    mlp, attention, embedding = stack.mlp, stack.attention, stack.embedding
    return {
        "images": embedding.patches is not None,
        "layers that differ": len(stack.layer_kinds) > 1,
        "heads that share keys": attention.kv_heads != attention.n_heads,
        "a norm of queries and keys": attention.qk_norm is not None,
        "no MLP": mlp is None,
        "a mixture of experts": mlp is not None and mlp.experts is not None,
        "a gated MLP with biases": mlp is not None and mlp.gated and mlp.bias_in,
        "this activation function": mlp is not None and mlp.activation not in NAME_OF,
        "a factor of the embedding": embedding.scale is not None,
        "an embedding of another width": embedding.width is not None,
        "a soft-cap of the logits": config.logit_cap is not None,
    }


def _refuse_problems(config: Config, facade: str, problems: dict[str, bool]) -> None:
    present = [name for name, is_there in problems.items() if is_there]
    if present:
        raise _refusal(config, f"{facade} can't express {present[0]}")


def _refusal(config: Config, why: str) -> InvalidConfig:
    return InvalidConfig(
        f"{config.name or 'This model'}: {why}. Use the model of interp.load itself, whose "
        "run_with_cache and run_with_hooks take TransformerLens's names."
    )
