"""M2M-100 and NLLB (Fan et al. 2020, arXiv:2010.11125; Costa-jussà et al. 2022, arXiv:2207.04672).

Pegasus with other sinusoidal positions: the wavelengths are 10000^(i / (d/2 − 1)), so that the last
is 10000, and the first token has position ``pad_token_id`` + 1. (``transformers`` recognises
padding by its id, this toolkit by the mask. It also rounds the angles to float32, which changes a
sine by up to 1e-4 at position 1000; this toolkit does not.) The language token comes before or
after the text, if the tokenizer adds it.
"""

from dataclasses import replace
from typing import Any

from interp.config import Config, PositionsConfig
from interp.loading.families import bart, pegasus
from interp.loading.families.roberta import first_position
from interp.loading.foreign_config import ForeignConfig

DEFAULTS: dict[str, Any] = {
    **bart.DEFAULTS,
    "vocab_size": 128112,
    "activation_function": "relu",
    "scale_embedding": True,
    "pad_token_id": 1,
}
LAST_WAVELENGTH = 10_000.0


def config(fields: ForeignConfig) -> Config:
    """Sinusoidal positions; one vocabulary."""
    bart.allow_norms(fields, before=True)
    pairs = fields.integer("d_model") / 2
    positions = PositionsConfig(
        kind="sinusoidal",
        base=LAST_WAVELENGTH ** (pairs / (pairs - 1)),
        first=first_position(fields),
        layout="half",
    )
    return pegasus.with_sinusoidal_positions(fields, positions)


FAMILIES = [
    replace(
        bart.BART,
        name="M2M-100, NLLB",
        model_types=("m2m_100",),
        config=config,
        weights=pegasus.weights,
        defaults=DEFAULTS,
        ignored=(r"^(encoder|decoder)\.embed_positions\.weights$",),
    )
]
