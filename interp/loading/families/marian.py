"""Marian (Junczys-Dowmunt et al. 2018), the translation models of OPUS-MT: BART's stacks.

Positions are sinusoidal, with all sines before all cosines, and are not read from files; embeddings
are not normed. Source and target may have separate vocabularies.
"""

from dataclasses import replace
from typing import Any

from interp.config import Config, EmbeddingConfig, PositionsConfig
from interp.loading.families import bart
from interp.loading.foreign_config import ForeignConfig

DEFAULTS: dict[str, Any] = {
    **bart.DEFAULTS,
    "vocab_size": 58101,
    "share_encoder_decoder_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": 0,
    "decoder_start_token_id": 58100,
}


def config(fields: ForeignConfig) -> Config:
    """Sinusoidal positions; one vocabulary or two.

    Raises:
        ModelLoadError: as for :func:`bart.of_parts`; or there are two vocabularies and only one
            embedding.
    """
    bart.allow_norms(fields, before=False)
    fields.allow_only("normalize_embedding", (False,))
    fields.allow_only("static_position_embeddings", (True,))
    one_vocabulary = fields.flag("share_encoder_decoder_embeddings")
    shared = bart.ENCODER_EMBEDDING not in fields.weight_names
    if shared and not one_vocabulary:
        expected = "true, as the weights have one embedding"
        raise fields.unsupported("share_encoder_decoder_embeddings", one_vocabulary, expected)
    source = fields.integer("vocab_size")
    return bart.of_parts(
        fields,
        PositionsConfig(kind="sinusoidal", layout="half"),
        EmbeddingConfig(scale=bart.embedding_scale(fields)),
        d_vocab=source if one_vocabulary else fields.get("decoder_vocab_size", source),
        d_vocab_source=None if one_vocabulary else source,
        shared=shared,
    )


FAMILIES = [
    replace(
        bart.BART,
        name="Marian",
        model_types=("marian",),
        config=config,
        weights=bart.shared_weights,
        defaults=DEFAULTS,
        fields=(*bart.BART.fields, "decoder_vocab_size"),
        ignored=(r"^(encoder|decoder)\.embed_positions\.weight$",),
    )
]
