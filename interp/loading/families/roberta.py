"""RoBERTa (Liu et al. 2019): BERT's stack, positions counted from behind the padding token's id.

A text's first token has position pad_token_id + 1; the rows before belong to no token. (Theirs
counts on at tokens that are not padding by their id; ours, at those that are not masked.) There is
one type of token, as a rule; the heads have names of their own.
"""

from typing import Any

from interp.config import Config, HeadConfig, NormConfig
from interp.loading.families.bert import (
    DEFAULTS,
    EMBEDDING,
    IGNORED,
    OLD_NORMS,
    POOLED,
    TOKENS,
    classifier,
    decoder,
    encoder,
    has_pooler,
    head,
    of_stack,
    pooler,
)
from interp.loading.family import Family
from interp.loading.foreign_config import Raw
from interp.loading.weight import Table


def config(raw: Raw) -> Config:
    """BERT's, with fewer positions."""
    n_ctx = raw.whole("max_position_embeddings") - first_position(raw)
    return of_stack(raw, exit_of(raw), n_ctx)


def first_position(raw: Raw) -> int:
    """The row of the first token's position."""
    pad = raw["pad_token_id"]
    if isinstance(pad, bool) or not isinstance(pad, int) or pad < 0:
        raise raw.refused("pad_token_id", pad, "a whole number of at least 0")
    return pad + 1


def exit_of(raw: Raw) -> dict[str, Any]:
    """What follows the stack, as fields of the whole configuration."""
    pooler = {"pooler": has_pooler(raw)}
    if "lm_head.dense.weight" in raw.keys:
        masked = HeadConfig("gelu", NormConfig(eps=raw.number("layer_norm_eps")))
        return {"head": masked, "tied": raw.head == "tied", "bias_u": True, **pooler}
    if "classifier.out_proj.weight" in raw.keys:
        return {"head": POOLED, "n_classes": raw.n_classes, "bias_u": True, **pooler}
    if "classifier.weight" in raw.keys:
        if has_pooler(raw) and not raw.saved_as(TOKENS):
            raise raw.refused("architectures", raw.get("architectures"), f"…{TOKENS}")
        return {"n_classes": raw.n_classes, "bias_u": True, **pooler}
    return {"unembeds": False, **pooler}


def weights(config: Config, raw: Raw) -> Table:
    """BERT's stack, less the positions before the first; then what follows it."""
    stack, name = encoder(config), "encoder.entry.W_pos"
    stack[name] = stack[name][first_position(raw) :]
    return stack | pooler(config) | ending(config, raw)


def ending(config: Config, raw: Raw) -> Table:
    """Head and unembedding."""
    if config.head == POOLED:
        return head("classifier.dense") | classifier("classifier.out_proj")
    if config.n_classes is not None:
        return classifier("classifier")
    if not config.unembeds:
        return {}
    return {
        **head("lm_head.dense", "lm_head.layer_norm"),
        **decoder(raw, "lm_head.decoder", "lm_head.bias"),
    }


FAMILIES = [
    Family(
        name="RoBERTa",
        model_types=("roberta",),
        config=config,
        weights=weights,
        defaults={**DEFAULTS, "vocab_size": 50265, "pad_token_id": 1},
        names=((r"^roberta\.", ""), *OLD_NORMS),
        ignored=IGNORED,
        embedding=EMBEDDING,
        head="lm_head.decoder.weight",
    ),
]
