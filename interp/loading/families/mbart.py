"""mBART and mBART-50 (Liu et al. 2020, arXiv:2001.08210; Tang et al. 2020, arXiv:2008.00401).

BART with a norm before each sub-layer, and one after the last block of each stack. The language
token comes before the text (mBART-50) or after its EOS (mBART), if the tokenizer adds it; the first
token of the decoder is ``decoder_start_token_id``, if that is set.
"""

from dataclasses import replace
from typing import Any

from interp.config import Config, NormConfig
from interp.loading.families import bart
from interp.loading.foreign_config import ForeignConfig
from interp.loading.weight import Table, norm, prefixed

DEFAULTS: dict[str, Any] = {**bart.DEFAULTS, "decoder_start_token_id": None}


def config(fields: ForeignConfig) -> Config:
    """Like BART, with the norms in other places."""
    bart.allow_norms(fields, before=True)
    return with_pre_norms(bart.with_learned_positions(fields))


def with_pre_norms(model: Config) -> Config:
    """The same model with a norm before each sub-layer, and one after the last block."""
    stacks = {name: replace(stack, norm=NormConfig()) for name, stack in model.stacks.items()}
    return replace(model, **stacks)


def weights(config: Config, fields: ForeignConfig) -> Table:
    """Like BART, with the final norm of each stack."""
    return bart.weights(config, fields) | final_norms(config)


def final_norms(config: Config) -> Table:
    """The final norm of each stack."""
    table: Table = {}
    for name in config.stacks:
        table |= prefixed(f"{name}.", norm("final_norm", f"{name}.layer_norm"))
    return table


FAMILIES = [
    replace(
        bart.BART,
        name="mBART",
        model_types=("mbart",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        unread=(*bart.BART.unread, "_num_labels"),
    )
]
