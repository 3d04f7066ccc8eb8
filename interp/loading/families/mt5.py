"""mT5 (Xue et al. 2021, arXiv:2010.11934): multilingual T5 1.1.

The last stream is never multiplied by d_model^-½, regardless of ``tie_word_embeddings``.
"""

from dataclasses import replace
from typing import Any

from interp.config import Config
from interp.loading.families import t5
from interp.loading.foreign_config import ForeignConfig

DEFAULTS: dict[str, Any] = {
    **t5.DEFAULTS,
    "vocab_size": 250112,
    "d_ff": 1024,
    "num_layers": 8,
    "num_heads": 6,
    "feed_forward_proj": "gated-gelu",
}


def config(fields: ForeignConfig) -> Config:
    """Like T5, without the factor of the last stream."""
    return replace(t5.config(fields), logit_scale=None)


FAMILIES = [
    replace(
        t5.T5,
        name="mT5",
        model_types=("mt5",),
        config=config,
        defaults=DEFAULTS,
        fields=tuple(name for name in t5.T5.fields if name != "scale_decoder_outputs"),
        unread=(*t5.T5.unread, "scale_decoder_outputs"),
    )
]
