"""Marian (Junczys-Dowmunt et al. 2018), the translators of OPUS-MT: BART without its first norms.

Positions are waves, all sines before all cosines, and are not read from files. Source and target
may have vocabularies of their own.
"""

from typing import Any

from interp.config import Config, EmbeddingConfig, PositionsConfig
from interp.loading.families.bart import (
    ALIASES,
    EMBEDDING,
    ENCODER_EMBEDDING,
    pair,
    pair_weights,
    scale,
)
from interp.loading.family import Family
from interp.loading.foreign_config import Raw

DEFAULTS: dict[str, Any] = {
    "vocab_size": 58101,
    "max_position_embeddings": 1024,
    "d_model": 1024,
    "encoder_layers": 12,
    "encoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "decoder_layers": 12,
    "decoder_attention_heads": 16,
    "decoder_ffn_dim": 4096,
    "activation_function": "gelu",
    "scale_embedding": False,
    "share_encoder_decoder_embeddings": True,
    "eos_token_id": 0,
    "decoder_start_token_id": 58100,
}


def config(raw: Raw) -> Config:
    """As BART, but for what is added to tokens.

    Raises:
        ModelLoadError: also where two vocabularies are told and one embedding is there.
    """
    raw.only("normalize_embedding", (False,))
    raw.only("static_position_embeddings", (True,))
    told, shares = raw.flag("share_encoder_decoder_embeddings"), ENCODER_EMBEDDING not in raw.keys
    if shares and not told:
        raise raw.refused("share_encoder_decoder_embeddings", told, "true with one embedding")
    source = raw.whole("vocab_size")
    target = source if told else raw.get("decoder_vocab_size", source)
    return pair(
        raw,
        PositionsConfig(kind="sinusoidal", layout="half"),
        EmbeddingConfig(scale=scale(raw)),
        d_vocab=target,
        d_vocab_source=None if told else source,
        shared=shares,
    )


FAMILIES = [
    Family(
        name="Marian",
        model_types=("marian",),
        config=config,
        weights=pair_weights,
        defaults=DEFAULTS,
        aliases=ALIASES,
        names=((r"^model\.", ""),),
        ignored=(r"^(encoder|decoder)\.embed_positions\.weight$",),
        embedding=EMBEDDING,
        copies=(ENCODER_EMBEDDING,),
        shared="shared.weight",
    ),
]
