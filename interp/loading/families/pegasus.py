"""PEGASUS (Zhang et al. 2019, arXiv:1912.08777): mBART's stacks with sinusoidal positions.

Positions have all sines before all cosines and are not read from files; embeddings are not normed.
"""

from dataclasses import replace
from typing import Any

from interp.config import Config, EmbeddingConfig, PositionsConfig
from interp.loading.families import bart, mbart
from interp.loading.foreign_config import ForeignConfig
from interp.loading.weight import Table

DEFAULTS: dict[str, Any] = {
    **bart.DEFAULTS,
    "bos_token_id": None,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}


def config(fields: ForeignConfig) -> Config:
    """Sinusoidal positions; one vocabulary."""
    bart.allow_norms(fields, before=True)
    fields.allow_only("normalize_embedding", (False,))
    fields.allow_only("static_position_embeddings", (True,))
    return with_sinusoidal_positions(fields, PositionsConfig(kind="sinusoidal", layout="half"))


def with_sinusoidal_positions(fields: ForeignConfig, positions: PositionsConfig) -> Config:
    """Norms before each sub-layer and a final one; embeddings that are not normed."""
    embedding = EmbeddingConfig(scale=bart.embedding_scale(fields))
    shared = bart.ENCODER_EMBEDDING not in fields.weight_names
    return mbart.with_pre_norms(bart.of_parts(fields, positions, embedding, shared=shared))


def weights(config: Config, fields: ForeignConfig) -> Table:
    """Like mBART, without positions and norms of the embedding."""
    return bart.shared_weights(config, fields) | mbart.final_norms(config)


FAMILIES = [
    replace(
        bart.BART,
        name="Pegasus",
        model_types=("pegasus",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        ignored=(r"^(encoder|decoder)\.embed_positions\.weight$",),
    )
]
