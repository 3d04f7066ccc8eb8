"""MPNet (Song et al. 2020, arXiv:2004.09297): RoBERTa with relative biases besides its positions.

All layers share one learned bias of the scores for each head and bucket of distances, as in T5's
encoder. There are no token types. The first token of a text has position 2. (``transformers``
recognises padding by its id, 1; this toolkit by the mask.)
"""

from dataclasses import replace
from typing import Any

from interp.config import Config, PositionsConfig
from interp.loading.families import bert, roberta
from interp.loading.foreign_config import ForeignConfig
from interp.loading.weight import Table, from_key

DEFAULTS: dict[str, Any] = {
    **{name: value for name, value in bert.DEFAULTS.items() if name != "type_vocab_size"},
    "vocab_size": 30527,
    "relative_attention_num_buckets": 32,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
FIRST_POSITION, N_BUCKETS, MAX_DISTANCE = 2, 32, 128
"""These do not depend on the configuration; nor does the table of biases have another size."""
POSITIONS = PositionsConfig(
    kind="buckets", n_buckets=N_BUCKETS, max_distance=MAX_DISTANCE, learned=True
)


def config(fields: ForeignConfig) -> Config:
    """Like RoBERTa, with both kinds of positions."""
    fields.allow_only("relative_attention_num_buckets", (N_BUCKETS,))
    n_ctx = fields.integer("max_position_embeddings") - FIRST_POSITION
    model = bert.of_stack(fields, roberta.exit_settings(fields), n_ctx, has_types=False)
    return replace(model, encoder=replace(model.stacks["encoder"], positions=POSITIONS))


def weights(config: Config, fields: ForeignConfig) -> Table:
    """BERT's stack without the unused positions, the biases, the pooler and the head."""
    stack, positions = bert.encoder(config), "encoder.entry.W_pos"
    stack[positions] = stack[positions][FIRST_POSITION:]
    stack["encoder.ranges.weight"] = from_key("encoder.relative_attention_bias.weight")
    return stack | bert.pooler(config) | roberta.exit_weights(config, fields)


FAMILIES = [
    replace(
        bert.BERT,
        name="MPNet",
        model_types=("mpnet",),
        config=config,
        weights=weights,
        defaults=DEFAULTS,
        unread=(),
        renames=(
            (r"^mpnet\.", ""),
            *bert.OLD_NORMS,
            (r"\.attention\.attn\.q\.", ".attention.self.query."),
            (r"\.attention\.attn\.k\.", ".attention.self.key."),
            (r"\.attention\.attn\.v\.", ".attention.self.value."),
            (r"\.attention\.attn\.o\.", ".attention.output.dense."),
            (r"\.attention\.LayerNorm\.", ".attention.output.LayerNorm."),
        ),
        optional=(),
        head="lm_head.decoder.weight",
    )
]
