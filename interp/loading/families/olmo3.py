"""OLMo 3 (OLMo Team 2025): OLMo 2 with a window in three layers out of four.

A scaling of rotary positions applies to full layers only.
"""

from dataclasses import replace
from typing import Any

from interp.config import Config
from interp.loading.families import llama, olmo2
from interp.loading.foreign_config import ForeignConfig
from interp.loading.rotary import with_rope_of
from interp.loading.sliding_window import FULL, SLIDING, layer_types, sliding_layers

BASE, PERIOD = 500_000.0, 4
DEFAULTS: dict[str, Any] = {**olmo2.DEFAULTS, "rope_theta": BASE, "sliding_window": 4096}


def config(fields: ForeignConfig) -> Config:
    """By default, every fourth layer is full."""
    fields.allow_only("rope_theta", (BASE,))  # transformers reads others for full layers only
    types = layer_types(fields, lambda layer: (layer + 1) % PERIOD != 0)
    attention = olmo2.attention(fields)
    local = llama.whole_head_rotary(with_rope_of(fields, SLIDING, BASE))
    return llama.of_parts(
        with_rope_of(fields, FULL, BASE),
        attention,
        llama.gated_mlp(fields),
        norm=llama.rms_norm(fields, placement="write"),
        exceptions=sliding_layers(fields, types, attention, local),
    )


FAMILIES = [
    replace(
        olmo2.OLMO2,
        name="OLMo 3",
        model_types=("olmo3",),
        config=config,
        defaults=DEFAULTS,
        fields=(*olmo2.OLMO2.fields, "layer_types"),
    )
]
