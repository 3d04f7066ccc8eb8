"""ELECTRA (Clark et al. 2020, arXiv:2003.10555): BERT's blocks on embeddings of their own width.

The normed sum of embeddings is projected to the width of the stream if the widths differ. The
generator is a masked language model, whose head outputs vectors of the embeddings' width. The
discriminator has one logit per token, for the token having been replaced.
"""

from dataclasses import replace
from typing import Any

from interp.config import NO_NORM, Config, HeadConfig, NormConfig
from interp.loading.families import bert
from interp.loading.foreign_config import ForeignConfig
from interp.loading.weight import Table, linear

DEFAULTS: dict[str, Any] = {
    **bert.DEFAULTS,
    "embedding_size": 128,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}
GENERATOR, DISCRIMINATOR = "generator_predictions", "discriminator_predictions"
LM_HEAD = "generator_lm_head"
OF_TEXTS = HeadConfig("gelu", NO_NORM)
"""The head of a text classifier."""


def config(fields: ForeignConfig) -> Config:
    """BERT's stack; the weights that are present determine the head."""
    n_ctx = fields.integer("max_position_embeddings")
    return bert.of_stack(fields, exit_settings(fields), n_ctx, sum_width(fields))


def sum_width(fields: ForeignConfig) -> int | None:
    """``embedding_size``, if it differs from the width of the stream."""
    width = fields.integer("embedding_size")
    return None if width == fields.integer("hidden_size") else width


def exit_settings(fields: ForeignConfig) -> dict[str, Any]:
    """The fields of :class:`Config` for what follows the stack."""
    names = fields.weight_names
    if f"{GENERATOR}.dense.weight" in names:
        norm = NormConfig(eps=fields.number("layer_norm_eps"))
        return bert.masked_exit(fields, HeadConfig("gelu", norm, width=sum_width(fields)))
    if f"{DISCRIMINATOR}.dense.weight" in names:
        head = HeadConfig(fields.activation("hidden_act"), NO_NORM)
        return {"head": head, "n_classes": 1, "bias_u": True}
    if "classifier.out_proj.weight" in names:
        return {"head": OF_TEXTS, "n_classes": fields.n_classes, "bias_u": True}
    if "classifier.weight" in names:
        return {"n_classes": fields.n_classes, "bias_u": True}
    return {"unembeds": False}


def weights(config: Config, fields: ForeignConfig) -> Table:
    """BERT's stack, the projection of the embeddings and the head."""
    table = bert.encoder(config)
    if sum_width(fields) is not None:
        part = "encoder.embed_projection"
        table |= linear(f"{part}.weight", f"{part}.bias", "embeddings_project")
    return table | exit_weights(config, fields)


def exit_weights(config: Config, fields: ForeignConfig) -> Table:
    """The head and the unembedding."""
    if not config.unembeds:
        return {}
    if config.n_classes is None:
        head = bert.head(f"{GENERATOR}.dense", f"{GENERATOR}.LayerNorm")
        return head | bert.unembedding(fields, LM_HEAD)
    if f"{DISCRIMINATOR}.dense.weight" in fields.weight_names:
        last = bert.classifier(f"{DISCRIMINATOR}.dense_prediction")
        return bert.head(f"{DISCRIMINATOR}.dense") | last
    if config.head is not None:
        return bert.head("classifier.dense") | bert.classifier("classifier.out_proj")
    return bert.classifier("classifier")


FAMILIES = [
    replace(
        bert.BERT,
        name="ELECTRA",
        model_types=("electra",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        unread=("summary_last_dropout",),
        renames=((r"^electra\.", ""), *bert.OLD_NORMS),
        optional=(),
        head=f"{LM_HEAD}.weight",
    )
]
