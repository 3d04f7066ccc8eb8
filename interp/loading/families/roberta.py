"""RoBERTa (Liu et al. 2019, arXiv:1907.11692), and XLM-RoBERTa and CamemBERT of the same form.

BERT's stack, with positions that start after the padding id: the first token of a text has position
``pad_token_id`` + 1, and the rows of the table before it are unused. (``transformers`` recognises
padding by its id, this toolkit by the mask.) Usually there is one token type. The heads have other
names than in BERT.
"""

from dataclasses import replace
from typing import Any

from interp.config import Config, HeadConfig, NormConfig
from interp.loading.families import bert
from interp.loading.foreign_config import ForeignConfig
from interp.loading.weight import Table


def config(fields: ForeignConfig) -> Config:
    """Like BERT, with fewer positions than rows of the table."""
    n_ctx = fields.integer("max_position_embeddings") - first_position(fields)
    return bert.of_stack(fields, exit_settings(fields), n_ctx)


def first_position(fields: ForeignConfig) -> int:
    """The row of the first token's position."""
    pad = fields["pad_token_id"]
    if isinstance(pad, bool) or not isinstance(pad, int) or pad < 0:
        raise fields.unsupported("pad_token_id", pad, "an integer of at least 0")
    return pad + 1


def exit_settings(fields: ForeignConfig) -> dict[str, Any]:
    """The fields of :class:`Config` for what follows the stack."""
    has_pooler = bert.has_pooler(fields)
    pooler = {"pooler": has_pooler}
    if "lm_head.dense.weight" in fields.weight_names:
        head = HeadConfig("gelu", NormConfig(eps=fields.number("layer_norm_eps")))
        return bert.masked_exit(fields, head) | pooler
    if "classifier.out_proj.weight" in fields.weight_names:
        return {"head": bert.POOLED, "n_classes": fields.n_classes, "bias_u": True, **pooler}
    if "classifier.weight" in fields.weight_names:
        if has_pooler and not fields.architecture_suffix(bert.TOKENS):
            raise fields.unsupported_head(bert.TOKENS)
        return {"n_classes": fields.n_classes, "bias_u": True, **pooler}
    return {"unembeds": False, **pooler}


def weights(config: Config, fields: ForeignConfig) -> Table:
    """BERT's stack without the unused positions, the pooler and the head."""
    stack, positions = bert.encoder(config), "encoder.entry.W_pos"
    stack[positions] = stack[positions][first_position(fields) :]
    return stack | bert.pooler(config) | exit_weights(config, fields)


def exit_weights(config: Config, fields: ForeignConfig) -> Table:
    """The head and the unembedding."""
    if config.head == bert.POOLED:
        return bert.head("classifier.dense") | bert.classifier("classifier.out_proj")
    if config.n_classes is not None:
        return bert.classifier("classifier")
    if not config.unembeds:
        return {}
    return {
        **bert.head("lm_head.dense", "lm_head.layer_norm"),
        **bert.unembedding(fields, "lm_head.decoder", "lm_head.bias"),
    }


FAMILIES = [
    replace(
        bert.BERT,
        name=name,
        model_types=(model_type,),
        config=config,
        weights=weights,
        defaults={**bert.DEFAULTS, "vocab_size": d_vocab, "pad_token_id": 1},
        renames=((r"^roberta\.", ""), *bert.OLD_NORMS),
        optional=(),
        head="lm_head.decoder.weight",
    )
    for name, model_type, d_vocab in (
        ("RoBERTa", "roberta", 50265),
        ("XLM-RoBERTa", "xlm-roberta", 30522),
        ("CamemBERT", "camembert", 30522),
    )
]
